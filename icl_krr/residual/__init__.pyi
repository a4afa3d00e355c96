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
