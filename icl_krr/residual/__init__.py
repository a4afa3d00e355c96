"""The residual stream: a direct sum of named slots, linear reads of it, tokens in and out."""

from ..tasks import check_axes, chunk_of, map_tasks
from .layout import ROLES, Layout, Slot
from .reads import Read, join, one_hot
from .tokens import TOKENS, Stream, channels, embed, fields, num_tokens, positions, rows, visible

__all__ = [
    "ROLES",
    "TOKENS",
    "Layout",
    "Read",
    "Slot",
    "Stream",
    "channels",
    "check_axes",
    "chunk_of",
    "embed",
    "fields",
    "join",
    "map_tasks",
    "num_tokens",
    "one_hot",
    "positions",
    "rows",
    "visible",
]
