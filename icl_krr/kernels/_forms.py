"""How a transformer computes a kernel: softmax patterns, diagonal terms and feature layers."""

from __future__ import annotations

from typing import Any, NamedTuple

from .._core.constants import xp
from .._core.readable import readable
from ._monomials import num_monomials


@readable
class Pattern(NamedTuple):
    r"""A term $w \exp(c \langle Ux, Uz \rangle - d (|Ux|^2 + |Uz|^2) / 2)$ for one softmax head.

    With a tilt $g$, the term is multiplied by $\exp(\langle g, x \rangle + \langle g, z \rangle)$.

    Attributes:
        weight: factor $w$, of either sign.
        inner: coefficient $c$ of the inner product, or None if the term is absent.
        norm: coefficient $d$ of the squared norms, or None if the term is absent.
        projection: matrix $U$ with p columns, or None for the identity.
        tilt: vector $g$ [p], or None for zero.

    >>> Pattern(1.0, inner=2.0, norm=None, projection=None).weight
    1.0
    """

    weight: Any
    inner: Any
    norm: Any
    projection: Any
    tilt: Any = None


Patterns = tuple[Pattern, ...]


@readable
class Diagonal(NamedTuple):
    r"""One term $w g(a |Ux|^2 + \langle t, x \rangle)$ of $k(x, x)$.

    Attributes:
        weight: factor $w$.
        function: name of $g$: "identity", "exp", or "one" for the constant 1.
        factor: coefficient $a$, or None for zero.
        projection: matrix $U$ [d, p], or None for the identity.
        tilt: vector $t$ [p], for "exp" only, or None for zero.

    >>> Diagonal(1.0, "identity", 1.0, None).function
    'identity'
    """

    weight: Any
    function: str
    factor: Any
    projection: Any
    tilt: Any = None


@readable
class FeatureLayer(NamedTuple):
    r"""Features $\phi(x) = s B^T e^{\langle t, x \rangle - \delta |Ux|^2} g(W U x + b)$ of an MLP.

    Attributes:
        projection: matrix $U$ [d, p], or None for the identity.
        function: name of $g$: "identity", "exp" or "cos". With "identity", `damping` and `offsets`
            must be None.
        frequencies: matrix $W$ [h, d], or None for the identity.
        offsets: vector $b$ [h], or None for zero.
        damping: scalar $\delta$, or None for zero.
        mix: matrix $B$ [h, m], or None for the identity.
        tilt: vector $t$ [p], only with `frequencies`, or None for zero.
        scale: scalar $s$, not with "identity", or None for 1.
        degree: with "identity", $g$ gives all products of so many channels, each times the root of
            its multinomial coefficient, as in `Polynomial`.

    >>> FeatureLayer(projection=None).is_read
    True
    """

    projection: Any
    function: str = "identity"
    frequencies: Any = None
    offsets: Any = None
    damping: Any = None
    mix: Any = None
    tilt: Any = None
    scale: Any = None
    degree: int = 1

    @property
    def is_read(self) -> bool:
        """Whether the features are $Ux$, which a transformer computes without an MLP layer."""
        return self.frequencies is None and self.degree == 1

    def times(self, matrix: Any) -> FeatureLayer:
        """The layer whose features are multiplied by a matrix.

        Args:
            matrix: matrix [m, number of new features].
        """
        return self._replace(mix=matrix if self.mix is None else xp.matmul(self.mix, matrix))

    def width(self, channels: int) -> int:
        """The number m of features for d channels of $Ux$.

        Args:
            channels: number d.
        """
        if self.mix is not None:
            return self.mix.shape[1]
        hidden = channels if self.frequencies is None else len(self.frequencies)
        return num_monomials(hidden, self.degree)
