"""Ablations: the effect of every part of a model, compared with its algorithm."""
