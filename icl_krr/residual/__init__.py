"""The residual stream: a direct sum of named slots, linear reads of it, tokens in and out.

A `Stream` is {slot: [tokens, width]}; a model whose slots were merged has the one slot "stream".
Tokens are one aggregator, the supports and the queries, in that order; these are their `ROLES`.
`TOKENS` are the two ways to lay supports out: as "pairs", one token of x and y each, or
"interleaved", one of x and after it one of y.
"""

from .layout import ROLES, Layout, Slot
from .reads import Read, join
from .tokens import TOKENS, Stream, embed, fields, num_tokens, visible

__all__ = [
    "ROLES",
    "TOKENS",
    "Layout",
    "Read",
    "Slot",
    "Stream",
    "embed",
    "fields",
    "join",
    "num_tokens",
    "visible",
]
