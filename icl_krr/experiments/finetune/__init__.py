"""Fine-tuning: train the weights of a constructed algorithm."""
