"""What experiments share: rows and draws, recipes and runs, spectra, choice of hyperparameters."""
