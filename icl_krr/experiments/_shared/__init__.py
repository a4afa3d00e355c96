"""Shared code of the experiments: rows, draws, recipes, runs, spectra and model selection."""
