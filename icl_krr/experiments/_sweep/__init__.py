"""Sweeps: constructed transformers along one axis, compared with exact KRR at every depth."""
