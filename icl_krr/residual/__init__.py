"""The residual stream: named slots, linear maps from these slots (reads), and the tokens of a task.

A `Stream` is a dictionary {slot: [T, width]}. A model with merged slots has only the slot "stream".
The tokens are one aggregator, then the supports, then the queries; `ROLES` lists these three roles.
`TOKENS` lists the two token formats. In the format "pairs", each support is one token with x and y.
In the format "interleaved", each support is two tokens: first x, then y. A model whose spec has
`centred=True` sees x relative to the mean of the unmasked supports' x (see `embed`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
