"""The residual stream: a direct sum of named slots, linear reads of it, tokens in and out."""

from ..tasks import check_axes, chunk_of, map_tasks
from .layout import ROLES, Layout, Slot
from .reads import Read, join, one_hot
from .tokens import Stream, channels, embed, fields, rows, visible

__all__ = [
    "ROLES",
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
    "one_hot",
    "rows",
    "visible",
]
