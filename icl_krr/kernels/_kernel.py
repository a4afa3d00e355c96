"""The base class of kernels, with every method that a kernel can have."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .._core.messages import constructor_hint
from .._core.pytree import jit_if_concrete
from ._forms import Diagonal, FeatureLayer, Patterns


class Kernel(ABC):
    r"""A positive semi-definite function $k(x, z)$ of two points, the base class of all kernels.

    Calling a kernel with `x` [n, p] and `z` [m, p] returns the matrix of all $k(x_i, z_j)$, [n, m],
    in their dtype. A subclass implements some of the methods. The others raise an error that names
    the kernel, and so does `patterns` of `Linear` without `epsilon`.

    Attributes:
        bandwidth: name of the field that scales distances or logits, or None.
        featured: whether the features of the kernel are known, so that linear attention can apply
            it.
        largest: bound on all values of the kernel, or None if they have no bound.
        spectral_freedom: degrees of freedom of the t distribution of the frequencies, or None if it
            is normal or there is none.
        approximated: whether attention applies a sum of Gaussian kernels that is not exact.

    >>> from icl_krr import Gaussian
    >>> Gaussian.bandwidth, Gaussian(2.0).stretched(3.0).lengthscale
    ('lengthscale', 6.0)
    """

    bandwidth: ClassVar[str | None] = None
    featured: ClassVar[bool] = False
    largest: ClassVar[float | None] = None
    spectral_freedom: ClassVar[int | None] = None
    approximated: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]: ...

    @jit_if_concrete
    def diagonal(self, x: Float[Array, "n p"] | np.ndarray) -> Float[Array, " n"]:
        """$k(x_i, x_i)$ for every row of `x`."""
        return jax.vmap(lambda point: self(point[None], point[None])[0, 0])(x)

    @property
    def stationary(self) -> bool:
        """Whether $k(x, z)$ depends on $x - z$ only, so that the origin of x does not matter."""
        return False

    def constant(self, x: Float[Array, "n p"]) -> Float[Array, " n"]:
        """What the kernel makes of the function 1: 1 at every row of `x`; see `Weighted`."""
        return jnp.ones(len(x), x.dtype)

    def rounding(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        r"""Estimate the rounding errors of the values $k(x_i, z_j)$, in units of the unit roundoff.

        In general this is $\sqrt{k(x_i, x_i) k(z_j, z_j)}$, as for an inner product of features.
        """
        sizes = [jnp.sqrt(jnp.abs(self.diagonal(points))) for points in (x, z)]
        return sizes[0][:, None] * sizes[1][None]

    @classmethod
    def of_bandwidth(cls, value: Any) -> Any:
        """The kernel with this bandwidth and the default values of its other fields.

        Args:
            value: temperature or lengthscale; ignored by a class without a bandwidth.
        """
        absent = dataclasses.MISSING
        others = [field for field in dataclasses.fields(cls) if field.name != cls.bandwidth]  # pyright: ignore[reportArgumentType]
        if needed := [f.name for f in others if f.default is f.default_factory is absent]:
            raise TypeError(
                "kernel must need no more than a bandwidth to be made from one, "
                f"got {cls.__name__}, which needs {' and '.join(needed)}"
            )
        return cls() if cls.bandwidth is None else cls(**{cls.bandwidth: value})

    @classmethod
    def typical_bandwidth(cls, x: Float[Array, "n p"], mask: Any = None) -> Float[Array, ""]:
        r"""The bandwidth at which $\log k(x_i, x_j)$ is of order 1 for the given points."""
        raise TypeError(f"kernel must have a bandwidth, got {cls.__name__}, which has none")

    @classmethod
    def bandwidths(cls, x: Float[Array, "n p"], mask: Any = None) -> Float[Array, " 17"]:
        r"""A grid of 17 bandwidths from 1/16 to 16 times the typical one.

        If the typical bandwidth is 0 or no point counts, the grid goes from 1/16 to 16.
        """
        typical = cls.typical_bandwidth(x, mask)
        typical = jnp.where(typical > 0, typical, 1)
        return typical * jnp.logspace(-4, 4, 17, base=2, dtype=typical.dtype)

    def stretched(self, factor: Any) -> Any:
        """The kernel with its bandwidth, if it has one, multiplied by `factor`.

        Args:
            factor: scalar > 0.
        """
        if self.bandwidth is None:
            return self
        scaled = {self.bandwidth: getattr(self, self.bandwidth) * factor}
        return dataclasses.replace(self, **scaled)  # pyright: ignore[reportArgumentType]

    def sketched(self, sketch: Float[Array, "p m"]) -> Kernel:
        r"""The kernel $(x, z) \mapsto k(P^T x, P^T z)$; a projection applies to $P^T x$."""
        raise ValueError(
            f"kernel must be {_kernels_with('sketched')} to be sketched by a matrix, got {self!r}"
        )

    @property
    def parts(self) -> tuple[tuple[Any, Any], ...]:
        r"""Pairs $(w_h, k_h)$ of weights and positive kernels with $k = \sum_h w_h k_h$."""
        raise not_positive(self, "to give smoothing weights")

    def patterns(self, dtype: DTypeLike, epsilon: Any = None, symmetric: bool = True) -> Patterns:
        r"""The softmax patterns whose sum equals or, for `Linear` and Matern, approximates $k$.

        Args:
            epsilon: small scalar $\epsilon$ > 0, which only `Linear` needs.
            symmetric: whether `Linear` uses $\sinh(\epsilon s) / \epsilon$, with error
                $O(\epsilon^2)$, or $(e^{\epsilon s} - 1) / \epsilon$, with error $O(\epsilon)$, for
                $s = \langle Ux, Uz \rangle$.
        """
        raise ValueError(
            f"kernel must be {_kernels_with('patterns')} to be applied by softmax attention, "
            f"got {self!r}"
        )

    def diagonal_terms(self, dtype: DTypeLike) -> tuple[Diagonal, ...]:
        """The terms whose sum is $k(x, x)$, in a form that a transformer can compute."""
        rule = f"kernel must implement diagonal_terms to run in a transformer, got {self!r}"
        raise ValueError(rule)

    @property
    def feature_map(self) -> Callable[[Float[Array, "n p"]], Float[Array, "n m"]]:
        r"""The feature map $\phi$ with $k(x, z) = \phi(x)^T \phi(z)$, from [n, p] to [n, m]."""
        raise TypeError(
            "kernel must be Linear(), Polynomial() or Features(...) because only their features "
            f"are known, got {self!r}"
        )

    def feature_layer(self, dtype: DTypeLike) -> FeatureLayer:
        r"""The feature map $\phi$ as one layer of an MLP."""
        raise ValueError(
            "kernel must be Linear(), Polynomial() or Features(...) to be applied by linear "
            f"attention, got {self!r}; use softmax attention, if the solver runs on it, or "
            "sketch=icl_krr.sketches.nystrom_features(kernel, x, width=16)"
        )

    def nystrom_features(self, landmarks: Float[Array, "l p"]) -> FeatureLayer:
        """One MLP layer that computes $k(x, z_j)$ for every landmark $z_j$."""
        raise ValueError(
            "kernel must be Linear, Polynomial, Exponential, Gaussian or another LogBilinear to be "
            f"computed at landmarks by an MLP, got {self!r}"
        )

    def derivative_in_x(
        self, x: Float[Array, "n p"], z: Float[Array, "m p"]
    ) -> Float[Array, "n m p"]:
        r"""The derivative $\partial k(x_i, z_j) / \partial x_i$ by an explicit formula."""
        raise TypeError(f"kernel must have a formula for its derivative in x, got {self!r}")

    def derivative_in_projection(
        self, x: Float[Array, "n p"], z: Float[Array, "m p"]
    ) -> Float[Array, "n m d p"]:
        r"""The derivative $\partial k(x_i, z_j) / \partial U$ in the projection, by a formula.

        For a kernel without a projection, $U$ is the identity and d = p.
        """
        raise TypeError(f"kernel must have a formula for its derivative in U, got {self!r}")

    def derivative_in_bandwidth(
        self, x: Float[Array, "n p"], z: Float[Array, "m p"]
    ) -> Float[Array, "n m"]:
        """The derivative of $k(x_i, z_j)$ in the temperature or lengthscale, by a formula."""
        raise TypeError(f"kernel must have a derivative in its bandwidth, got {self!r}")


def not_positive(kernel: Kernel, purpose: str) -> TypeError:
    return TypeError(
        f"kernel must be positive {purpose}, got {kernel!r}; "
        "use icl_krr.Exponential or icl_krr.Gaussian"
    )


def _kernels_with(method: str) -> str:
    """The kernels of the catalogue that implement a method, and those that always do, in words."""
    from .. import catalogue  # whose packages may import this file

    classes = [kernel_class(name) for name in catalogue.KERNELS]
    names = [cls.__name__ for cls in classes if getattr(cls, method) is not getattr(Kernel, method)]
    return f"{', '.join(names)}, a Mixture or a LogBilinear"


def check_kernel(kernel: Kernel) -> None:
    if not isinstance(kernel, Kernel):
        got = f"{kernel!r}{instead_of(kernel)}"
        raise TypeError(f"kernel must be a kernel such as icl_krr.Linear(), got {got}")


def instead_of(value: object) -> str:
    """How the kernel is made that a class or a name in the catalogue means."""
    from .. import catalogue  # whose packages may import this file

    name = catalogue.spelled(value) if isinstance(value, str) else ""
    meant = kernel_class(name) if name in catalogue.KERNELS else value
    return constructor_hint(meant) if isinstance(meant, type) and issubclass(meant, Kernel) else ""


def kernel_class(name: str) -> type[Any]:
    """Return the class of a kernel of the catalogue.

    Args:
        name: name or short name in the catalogue.

    >>> kernel_class("rbf").bandwidth
    'lengthscale'
    """
    from .. import catalogue, kernels  # doors, which may import this file

    entry = catalogue.find("kernel", catalogue.KERNELS, name)
    if entry.kernel is not None:
        return entry.kernel
    spellings = {name.lower(): name for name in kernels.__all__}
    spelling = spellings.get(entry.name.replace("_", ""))
    if spelling is None:
        raise ValueError(f"icl_krr/kernels/__init__.pyi must list the class of {entry.name!r}")
    return getattr(kernels, spelling)


def make_kernel(name: str, values: Mapping[str, Any]) -> Any:
    """Make a kernel with the bandwidth from a dictionary of values.

    Args:
        name: name in the catalogue.
        values: values {name: value}, of which only the bandwidth, such as "temperature", is used;
            without it, the kernel has its default bandwidth.

    >>> make_kernel("exponential", {"temperature": 2.0}).temperature
    2.0
    """
    kernel = kernel_class(name)
    if not isinstance(values, Mapping):
        raise TypeError(f"values must be {{name: value}}, got {values!r}")
    value = values.get(kernel.bandwidth)
    return kernel() if value is None else kernel.of_bandwidth(value)


def name_of(kernel: Any) -> str:
    """Return the name of a kernel in the catalogue, or the name of its class if it has none.

    >>> name_of(kernel_class("linear")())
    'linear'
    """
    from .. import catalogue  # whose packages may import this file

    names = [name for name in catalogue.KERNELS if kernel_class(name) is type(kernel)]
    return names[0] if names else type(kernel).__name__
