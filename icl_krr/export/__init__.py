"""Models as files: native ones, and weights of stock architectures."""

from .native import load, save

__all__ = ["load", "save"]
