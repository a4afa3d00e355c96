from ._gpt2 import from_gpt2
from ._linear_attention import LayerInputs, from_linear_attention
from ._native import load, save
from ._t5 import T5, open_t5, to_t5

__all__ = [
    "T5",
    "LayerInputs",
    "from_gpt2",
    "from_linear_attention",
    "load",
    "open_t5",
    "save",
    "to_t5",
]
