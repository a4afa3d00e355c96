"""A differentiable simulator of in-context kernel ridge regression in transformers."""

import lazy_loader

# The command line answers `--help` without importing JAX, so nothing here does either.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
