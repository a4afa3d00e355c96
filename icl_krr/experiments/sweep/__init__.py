"""Grids of constructed transformers along one axis, each beside exact KRR at every depth."""
