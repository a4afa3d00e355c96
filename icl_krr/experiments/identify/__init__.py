"""Identify the solver that a model runs, for trained and for constructed models."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
