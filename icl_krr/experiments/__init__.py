"""Experiments: a frozen config and `run(...)` that returns rows; nothing here draws or prints."""
