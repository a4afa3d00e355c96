"""Random weights, from which training starts."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from .._core import checks, memory_limit
from ..residual import Layout, Read, Slot
from ._weights import Block, Heads, Norm, Spec, Transformer, Unit, Weights, Write


@dataclass(frozen=True)
class Architecture(Spec):
    """Sizes and settings of a pre-norm transformer, whose random weights `init` draws.

    Args:
        attention, causal, inclusive, aggregator, tokens: as in `Spec`.
        streaming, centred, max_supports: as in `Spec`.
        width: number of channels of the stream, a multiple of `heads`.
        heads: number of attention heads in a block.
        hidden: number of MLP units in a block; None means 4 * width, 0 no MLP.
        activation: activation of the MLP, "gelu", "relu" or "identity".
        layer_norm: whether a LayerNorm precedes each sublayer and the readout.
        max_tokens: number of learned positions; None: no positions. The aggregator and each support
            token have a position of their own; all queries share one.
        tied: whether all blocks share their weights (one block, looped).
        variance: whether the model has a further readout `log_variance` for each output, the
            logarithm of the variance of its Gaussian (see `icl_krr.predictive`).

    >>> Architecture(num_features=2, width=32, depth=2, causal=True, max_tokens=64).attention
    'softmax'
    """

    width: int = 64
    depth: int = 6
    heads: int = 4
    hidden: int | None = None
    activation: str = "gelu"
    layer_norm: bool = True
    max_tokens: int | None = None
    tied: bool = False
    variance: bool = False

    def __post_init__(self):
        super().__post_init__()
        for name in ("width", "depth", "heads"):
            checks.count(name, getattr(self, name))
        for name, least in (("hidden", 0), ("max_tokens", 1)):
            if getattr(self, name) is not None:
                checks.count(name, getattr(self, name), least)
        checks.choice("activation", self.activation, ("gelu", "relu", "identity"))
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads = {self.heads}, got {self.width}")


def init(key: jax.Array, architecture: Architecture, dtype: DTypeLike | None = None) -> Transformer:
    r"""Draw a transformer with random weights, of `depth` steps of one block each.

    The layout has the slot `stream` [T, width] and the slot `one`, which is 1 at every token: the
    weights on it are the biases. Every matrix [in, out] has entries $N(0, 1 / in)$. Matrices that
    write to the stream are smaller by the factor $\sqrt{2 depth}$, and query matrices by
    $\sqrt{d_k}$. Biases and positions are 0, and so are the weights of the readout `log_variance`:
    all variances are 1 at first. The random key of a parameter is derived from its name, so
    additional parameters do not change the others.

    Linear attention without LayerNorm adds up $n$ products of three numbers of the stream, so the
    stream would grow from block to block until it overflows. Its four matrices are therefore
    smaller by the factor $(1 + 128 (depth - 1))^{1/4}$ each: such a sum over a hundred tokens
    hardly changes what later blocks read.

    Args:
        architecture: sizes and settings of the transformer.

    >>> import jax
    >>> model = init(jax.random.key(0), Architecture(num_features=2, width=8, depth=3, heads=2))
    >>> model.depth, model.spec.attention, model.layout.names
    (3, 'softmax', ('stream', 'one'))
    """
    if not isinstance(architecture, Architecture):
        raise TypeError(f"architecture must be an icl_krr.Architecture, got {architecture!r}")
    checks.key("key", key)
    dtype = checks.dtype(dtype)
    leaves = jax.tree.leaves(jax.eval_shape(lambda key: draw(key, architecture, dtype), key))
    numbers = sum(leaf.size for leaf in leaves)
    memory_limit.check("weights", numbers, key, "use a smaller width or depth")
    return draw(key, architecture, dtype)


TOKENS = 128
"""Number of tokens over which sums of linear attention stay small in a model of several blocks."""

DATA = ("x", "y", "aggregator", "support", "query")
NAMES = ("query", "key", "value", "out", "up", "down", "readout", *(f"embed.{d}" for d in DATA))


@partial(jax.jit, static_argnums=(1, 2))
def draw(key: jax.Array, architecture: Architecture, dtype: jnp.dtype) -> Transformer:
    a, d = architecture, architecture.width
    hidden = 4 * d if a.hidden is None else a.hidden
    growing = a.attention == "linear" and not a.layer_norm
    small = (1 + TOKENS * (a.depth - 1)) ** -0.25 if growing else 1.0
    shrink, steps = (2 * a.depth) ** -0.5, jnp.arange(1 if a.tied else a.depth)

    # one program for all keys compiles faster than one for each
    names = jnp.array([zlib.crc32(name.encode()) for name in NAMES], jnp.uint32)
    step_keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    name_keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, names)
    keys = dict(zip(NAMES, jax.vmap(step_keys, in_axes=(0, None))(name_keys, steps), strict=True))

    def normal(name: str, rows: int, columns: int, scale: float = 1.0, step: Any = 0) -> jax.Array:
        return scale * rows**-0.5 * jax.random.normal(keys[name][step], (rows, columns), dtype)

    def affine(make: Callable, name: str, columns: int) -> Read:
        bias = jnp.zeros((1, columns), dtype)
        return Read({"stream": make(name, d, columns), "one": bias}, columns)

    def norm() -> dict[str, Norm]:
        if not a.layer_norm:
            return {}
        return {"stream": Norm(jnp.ones(d, dtype), jnp.zeros(d, dtype))}

    def block(step: jax.Array) -> Block:
        make, mix = partial(normal, step=step), partial(normal, step=step, scale=small)
        out = Write(affine(mix, "value", d), make("out", d, d, small * shrink), "stream")
        # the factor 1 / sqrt(d_k) of the logits is part of the query weights
        query = affine(mix, "query", d) * (d // a.heads) ** -0.5
        heads = Heads(query, affine(mix, "key", d), (out,), a.heads)
        if not hidden:
            return Block((heads,), (), norm(), {})
        down = make("down", hidden, d, shrink)
        mlp = Unit(None, affine(make, "up", hidden), down, "stream", a.activation)
        bias = Unit(Read({"one": jnp.zeros((1, d), dtype)}, d))
        return Block((heads,), (mlp, bias), norm(), norm())

    pairs = zip(DATA, (a.num_features, a.num_outputs, 1, 1, 1), strict=True)
    embedding = {name: normal(f"embed.{name}", width, d) for name, width in pairs}
    zero = affine(lambda _, *shape: jnp.zeros(shape, dtype), "log_variance", a.num_outputs)
    positions = {} if a.max_tokens is None else {"stream": jnp.zeros((a.max_tokens, d), dtype)}
    weights = Weights(
        embedding={"stream": Read(embedding, d), "one": Read({"one": jnp.ones((), dtype)}, 1)},
        positions=positions,
        steps=(jax.vmap(block)(steps),),
        final_norm=norm(),
        readout=affine(normal, "readout", a.num_outputs),
        readouts={"log_variance": zero} if a.variance else {},
    )
    layout = Layout((Slot("stream", d), Slot("one", 1, kind="data")))
    return Transformer(weights, architecture, layout, a.depth)
