"""Models as files: native ones, and weights of stock architectures."""

from .native import load, save
from .t5 import T5, open_t5, to_t5

__all__ = ["T5", "load", "open_t5", "save", "to_t5"]
