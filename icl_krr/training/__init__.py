"""Training: any model of the one forward, on tasks that are drawn inside the compiled step."""

import lazy_loader

# the settings are read without JAX
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
