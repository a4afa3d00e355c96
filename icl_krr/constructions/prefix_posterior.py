"""Mean and variance of a Gaussian process at every token, by conjugate gradient."""

from __future__ import annotations

from typing import Unpack

from jaxtyping import Array, Float

from .. import checks
from ..constants import xp
from ..kernels import Kernel, check_kernel
from ..transformer.weights import Transformer
from .assembly.construction import construction
from .assembly.posterior_sums import PosteriorSums
from .assembly.prefix import CausalOptions, feature_machine
from .prefix_conjugate_gradient import FORMS


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
    checks.positive_scalar("ridge", ridge)
    checks.count("steps", steps)
    checks.choice("form", form, tuple(FORMS))
    if approximates is not None:
        check_kernel(approximates)
    m = feature_machine(PosteriorSums, kernel, num_features, ridge=ridge, **options)
    m.ridges = xp.asarray(ridge, m.dtype)
    m.approximated = None if approximates is None else (approximates,)
    return FORMS[form](m, m.ridges, steps)
