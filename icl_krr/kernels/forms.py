"""What a transformer must know of a kernel: softmax patterns, a diagonal, a layer of features."""

from __future__ import annotations

from typing import Any, NamedTuple


class Pattern(NamedTuple):
    r"""One softmax head: $w \exp(c \langle Ux, Uz \rangle - d (|Ux|^2 + |Uz|^2) / 2)$.

    `weight` $w$, `inner` $c$ and `norm` $d$ are scalars that may be traced; `inner` or `norm` is
    None where there is no such term. `projection` $U$ is [d, p] or None.

    >>> Pattern(1.0, inner=2.0, norm=None, projection=None).weight
    1.0
    """

    weight: Any
    inner: Any
    norm: Any
    projection: Any


class Diagonal(NamedTuple):
    r"""A term of $k(x, x)$: `weight` $w$ times $g(a |Ux|^2)$.

    `function` $g$ is "identity", "exp", or "one" for the constant 1; `factor` $a$ is a scalar and
    `projection` $U$ is [d, p] or None.

    >>> Diagonal(1.0, "identity", 1.0, None).function
    'identity'
    """

    weight: Any
    function: str
    factor: Any
    projection: Any


class FeatureLayer(NamedTuple):
    r"""$\phi(x) = B^T e^{-\delta |Ux|^2} g(W U x + b)$: a feature map that an MLP can make.

    `function` $g$ is "identity" (with no $\delta$ and $b$), "exp" or "cos"; `projection` $U$
    [d, p], `frequencies` $W$ [h, d], `offsets` $b$ [h], `damping` $\delta$ and `mix` $B$ [h, m] are
    None for the identity, the identity, 0, 0 and the identity.

    >>> FeatureLayer(projection=None).is_read
    True
    """

    projection: Any
    function: str = "identity"
    frequencies: Any = None
    offsets: Any = None
    damping: Any = None
    mix: Any = None

    @property
    def is_read(self) -> bool:
        """Whether the features are no more than $Ux$, which needs no layer."""
        return self.frequencies is None

    @property
    def width(self) -> int:
        """The number m of features that a layer makes."""
        return len(self.frequencies) if self.mix is None else self.mix.shape[1]
