"""Regression on tables."""
