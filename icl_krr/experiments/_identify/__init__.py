"""Identify the solver that a model runs, for trained and for constructed models."""
