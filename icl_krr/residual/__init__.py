"""The residual stream: named slots, linear maps from these slots (reads), and the tokens of a task.

A `Stream` is a dictionary {slot: [T, width]}. A model with merged slots has only the slot "stream".
The tokens are one aggregator, then the supports, then the queries; `ROLES` lists these three roles.
`TOKENS` lists the two token formats. In the format "pairs", each support is one token with x and y.
In the format "interleaved", each support is two tokens: first x, then y. A model whose spec has
`centred=True` sees x relative to the mean of the unmasked supports' x (see `embed`).
"""

from ._layout import ROLES, Layout, Slot
from ._reads import Fixed, Read, join
from ._tokens import TOKENS, Stream, embed, fields, key_mask, num_tokens

__all__ = [
    "ROLES",
    "TOKENS",
    "Fixed",
    "Layout",
    "Read",
    "Slot",
    "Stream",
    "embed",
    "fields",
    "join",
    "key_mask",
    "num_tokens",
]
