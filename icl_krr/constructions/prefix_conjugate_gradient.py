"""Conjugate gradient at every token, for the regression of its prefix, or the posterior of it."""

from __future__ import annotations

from typing import Any, Unpack

from jaxtyping import Array, Float

from .. import checks, step_sizes
from ..constants import xp
from ..kernels import Kernel, check_kernel
from ..solvers.conjugate_gradient import fused, textbook
from ..solvers.momentum import descend
from ..solvers.preconditioned_conjugate_gradient import jacobi
from ..transformer.weights import Transformer
from .assembly.choice import construction
from .assembly.prefix import CausalOptions, prefix_sums
from .assembly.prefix_sums import PosteriorSums
from .compiler import run_on

FORMS = {"textbook": textbook, "fused": fused}


@construction
def prefix_conjugate_gradient(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""] | Float[Array, " m"],
    steps: int,
    form: str = "textbook",
    preconditioner: str | None = None,
    stores_sums: bool = False,
    **options: Unpack[CausalOptions],
) -> Transformer:
    r"""Build a causal transformer that solves a ridge regression at every token.

    One head a step computes $C_i d_i$ for all tokens in parallel, with the query $d_i$, the key
    $\beta_j \phi_j$ and the value $\phi_j$; inner products are local to a token. A step takes 7
    blocks, or 5 in the form "fused". The states are w, r, d [T, r m] and prediction.

    Args:
        preconditioner: "jacobi" for the diagonal of $A$, with the form "textbook" only.

    >>> import icl_krr as ik
    >>> model = prefix_conjugate_gradient(ik.Linear(), num_features=3, ridge=0.1, steps=3)
    >>> model.depth, model.blocks_per_step
    (24, 7)
    """
    checks.choice("form", form, tuple(FORMS))
    if preconditioner not in (None, "jacobi"):
        raise ValueError(f"preconditioner must be 'jacobi' or None, got {preconditioner!r}")
    if preconditioner is not None and form != "textbook":
        raise ValueError(f"form must be 'textbook' with a preconditioner, got {form!r}")
    m = prefix_sums(kernel, num_features, ridge=ridge, stores_sums=stores_sums, **options)
    function = FORMS[form] if preconditioner is None else jacobi
    return run_on(m, function, steps, ridge=ridge)


@construction
def prefix_posterior(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    steps: int,
    form: str = "textbook",
    approximates: Kernel | None = None,
    **options: Unpack[CausalOptions],
) -> Transformer:
    r"""Build a causal transformer that computes mean and variance of a Gaussian process.

    One head a step computes $C_i d_i$ and the mean. The variance is local to the token. A step
    takes 7 blocks, or 5 in the form "fused". The states are h, r, d [T, m], prediction, variance
    (of the function) and variance_gap, the bound $|r_i|^2$ on what the variance lacks: look at it
    before you trust a variance. Read-outs are `variances`, of a new output with strength 1, ridge
    included, and `variance_gaps`.

    Rounding delays convergence: if the eigenvalues of $C_i + \lambda I$ differ by factors of 100 or
    more, use 3 m steps, in float64 as well. In float32, a ridge below $10^{-5} |\phi|^2$ can make
    variances wrong and even negative. `icl_krr.check` compares with exact regression.

    >>> import icl_krr as ik
    >>> model = prefix_posterior(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> _, cache = ik.run_with_cache(model, ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]]))
    >>> round(float(cache["variance"][-1, -1]), 4)
    0.6667
    """
    checks.choice("form", form, tuple(FORMS))
    if approximates is not None:
        check_kernel(approximates)
    checks.one_ridge(ridge)
    m: Any = prefix_sums(kernel, num_features, ridge=ridge, kind=PosteriorSums, **options)
    m.ridges = xp.asarray(ridge, m.dtype)
    m.approximated = None if approximates is None else (approximates,)
    return run_on(m, FORMS[form], steps, ridge=ridge)


@construction
def prefix_chebyshev(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""] | Float[Array, " m"],
    steps: int,
    spectrum: tuple | None = None,
    stores_sums: bool = False,
    **options: Unpack[CausalOptions],
) -> Transformer:
    """Build a causal transformer that solves a ridge regression at every token, a block a step.

    The states are w, r, d [T, r m] and prediction.

    >>> import icl_krr as ik
    >>> model = prefix_chebyshev(ik.Linear(), num_features=3, ridge=1.0, steps=16, spectrum=(1, 9))
    >>> model.depth, model.blocks_per_step
    (19, 1)
    """
    checks.count("steps", steps)
    m = prefix_sums(kernel, num_features, ridge=ridge, stores_sums=stores_sums, **options)
    momentum = step_sizes.chebyshev(steps, spectrum)
    return run_on(m, descend, steps, ridge=ridge, momentum=momentum)
