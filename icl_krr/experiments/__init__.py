"""Experiments: each takes a frozen config and returns rows.

No experiment draws figures or prints.
"""
