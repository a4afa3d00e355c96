"""Experiments: each takes a frozen config and returns rows, and neither draws nor prints."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
