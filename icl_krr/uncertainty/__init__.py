"""Predictive distributions of an output."""

from .distribution import Predictive

__all__ = ["Predictive"]
