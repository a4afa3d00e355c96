"""The axes of a sweep. Each file builds the models of one axis."""
