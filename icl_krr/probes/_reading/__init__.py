"""Read a model: predictions after every layer, derivatives, filters, streams and weights."""
