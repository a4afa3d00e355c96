"""Experiments: each takes a frozen config and returns rows, and neither draws nor prints."""
