"""Conjugate gradient at every token, for the regression of its prefix, or the posterior of it."""

from __future__ import annotations

from typing import Unpack

from jaxtyping import Array, Float

from .. import checks
from ..constants import xp
from ..kernels import Kernel, check_kernel
from ..transformer.weights import Transformer
from .assembly.choice import construction
from .assembly.posterior_sums import PosteriorSums
from .assembly.prefix import CausalOptions, feature_machine, prefix_sums
from .conjugate_gradient import fused, textbook
from .preconditioned_conjugate_gradient import iterate, jacobi_of

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

    $$(C_i + \lambda I) w_i = b_i, \quad C_i = \sum_j e^{G_i - G_j} \beta_j \phi_j \phi_j^T, \quad
    b_i = \sum_j e^{G_i - G_j} \beta_j \phi_j y_j, \quad f_i = \phi_i^T w_i$$

    with the features $\phi$ of the kernel, and sums over the supports that token i sees. Conjugate
    gradient solves all these systems in parallel, each from $w = 0$, with $A = C_i + \lambda I$ and
    the direction $d$. One head a step computes $C_i d_i$, with the query $d_i$, the key
    $\beta_j \phi_j$ and the value $\phi_j$. Inner products are local to a token, so the aggregator
    is not needed. Without rounding, m steps are exact for m features. Then a query has the
    prediction of kernel ridge regression, and a support that of its prefix.

    A step takes 7 blocks, or 5 in the form "fused" (see `conjugate_gradient`). The states are w, r,
    d [T, r m] and prediction.

    In a Mesa layer, $\phi_i$ is the key $k_i$ and, where it predicts, the query $q_i$; $y_i$ is the
    value $v_i$, $g_i$ the log gate, $\beta_i$ the write strength and $\lambda I$ the matrix
    $\Lambda$. Gates and strengths are in both states, as here,

    $$H_i = e^{g_i} H_{i-1} + \beta_i k_i k_i^T, \quad
    Z_i = e^{g_i} Z_{i-1} + \beta_i k_i v_i^T, \quad o_i = Z_i^T (H_i + \Lambda)^{-1} q_i$$

    The layer reads after the write: this is `prefix="inclusive"`, where $q_i = k_i$ at a support
    and $q$ is any point at a query (see `CausalOptions`). Its conjugate gradient solves
    $(H_i + \Lambda) h = q_i$ and it returns $Z_i^T h$: the same prediction after m steps, from the
    other side, but its iterates differ. For a diagonal $\Lambda$, `ridge` may be a vector [m];
    `icl_krr.check` then needs the kernel with the projection $\Lambda^{-1/2} U$ for keys $U x$, and
    the ridge 1. A Mesa layer has no preconditioner; where it decodes, it starts at $q_i$ over the
    diagonal of $H_i + \Lambda$.

    With a `window` of w, it is the regression on the last w pairs. That is the objective of the
    Omega rule of Atlas, of which a layer takes one gradient step, and which is solved here.

    Args:
        steps: as in `icl_krr.constructions`, which also says what is raised.
        ridge: ridge $\lambda$ > 0, or a vector [m], one for each feature; may be traced.
        kernel, num_features, stores_sums, options: as in `prefix_sums`.
        form: order of the operations, "textbook" (default) or "fused".
        preconditioner: "jacobi" for the diagonal of $A$, with the form "textbook" only; default
            None: no preconditioner.

    Source: von Oswald et al., Uncovering mesa-optimization algorithms in transformers, 2023; von
    Oswald et al., MesaNet: sequence modeling by locally optimal test-time training, 2025;
    Behrouz et al., ATLAS: learning to optimally memorize the context at test time, 2025.

    >>> import icl_krr as ik
    >>> model = prefix_conjugate_gradient(ik.Linear(), num_features=3, ridge=0.1, steps=3)
    >>> model.depth, model.blocks_per_step
    (25, 7)
    """
    checks.choice("form", form, tuple(FORMS))
    if preconditioner not in (None, "jacobi"):
        raise ValueError(f"preconditioner must be 'jacobi' or None, got {preconditioner!r}")
    if preconditioner is not None and form != "textbook":
        raise ValueError(f"form must be 'textbook' with a preconditioner, got {form!r}")
    m = prefix_sums(kernel, num_features, ridge=ridge, stores_sums=stores_sums, **options)
    each = m.each_ridge(ridge)
    if preconditioner is not None:
        return iterate(m, each, steps, *jacobi_of(m, xp.asarray(ridge, m.dtype)))
    return FORMS[form](m, each, steps)


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

    $$(C_i + \lambda I) h_i = \phi_i, \quad C_i = \sum_j e^{G_i - G_j} \beta_j \phi_j \phi_j^T$$
    $$f_i = \sum_j e^{G_i - G_j} \beta_j y_j \phi_j^T h_i, \quad v_i = \lambda \phi_i^T h_i$$

    with the features $\phi$ of the kernel, and sums over the supports that token i sees. This is
    Bayesian linear regression on the features with prior $N(0, I)$ and noise of variance
    $\lambda / \beta_j$. All tokens solve in parallel by conjugate gradient from $h = 0$. One head a
    step computes $C_i d_i$ of the direction $d$, and one head, in the same block, the mean. The
    variance is local to the token. Without rounding, m steps are exact for m features. Then queries
    have the posterior of the kernel $\phi(x)^T \phi(z)$ given all supports, and supports that
    given their prefix. Rounding delays this: if the eigenvalues of $C_i + \lambda I$ differ by
    factors of 100 or more, use 3 m steps, in float64 as well.

    The variance is that of the function. An output has the variance $v_i + \lambda$, which
    `icl_krr.predictive` returns. In exact arithmetic, more steps never decrease $v_i$. Until
    conjugate gradient has converged, it is too small by $\lambda r_i^T (C_i + \lambda I)^{-1} r_i$
    with the residual $r_i$. This is at most $|r_i|^2$, which the slot `variance_gap` and the
    read-out `variance_gaps` of `icl_krr.read_outs` contain: look at them before you trust a
    variance. Rounding errors are not in this bound: in float32, a ridge below $10^{-5} |\phi|^2$
    can make variances wrong and even negative. `icl_krr.check` compares mean and variance with
    exact regression.

    If the features approximate another kernel k, as Nystrom features do, `approximates` adds the
    part $k(x_i, x_i) - |\phi_i|^2$ to $v_i$, which the features leave out. With all supports as
    landmarks, queries then have the exact posterior of k.

    A step takes 7 blocks, or 5 in the form "fused", as many as that of `prefix_conjugate_gradient`,
    which solves for the coefficients of the mean and has no variance.

    Args:
        steps: as in `icl_krr.constructions`, which also says what is raised.
        kernel, num_features, options: as in `prefix_sums`.
        ridge: ridge $\lambda$ > 0, the variance of the noise; may be a traced scalar.
        form: order of the operations, "textbook" (default) or "fused" (see `conjugate_gradient`).
        approximates: kernel k that the features approximate; default None: the kernel of the
            regression is that of the features.

    Returns:
        A `Transformer` with the states h, r, d [T, m], prediction [T, num_outputs], variance and
        variance_gap [T, 1], and the read-outs `variances` (of a new output with strength 1: ridge
        included) and `variance_gaps`.

    Source: Rasmussen and Williams, Gaussian processes for machine learning, 2006, eq. 2.8; von
    Oswald et al., MesaNet: sequence modeling by locally optimal test-time training, 2025, for the
    system with the right-hand side of the query; Quinonero-Candela and Rasmussen, A unifying view
    of sparse approximate Gaussian process regression, 2005, section 5, for `approximates`.

    >>> import icl_krr as ik
    >>> model = prefix_posterior(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> prediction, cache = ik.run_with_cache(model, task)
    >>> prediction.tolist(), round(float(cache["variance"][-1, -1]), 4)
    ([1.0], 0.6667)
    """
    checks.choice("form", form, tuple(FORMS))
    if approximates is not None:
        check_kernel(approximates)
    checks.one_ridge(ridge)
    m = feature_machine(PosteriorSums, kernel, num_features, ridge=ridge, **options)
    m.ridges = xp.asarray(ridge, m.dtype)
    m.approximated = None if approximates is None else (approximates,)
    return FORMS[form](m, m.ridges, steps)
