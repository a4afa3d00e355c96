"""Conjugate gradient at every token, on the ridge regression of its prefix (a Mesa layer)."""

from __future__ import annotations

from typing import Unpack

from jaxtyping import Array, Float

from .. import checks
from ..constants import xp
from ..kernels import Kernel
from ..transformer.weights import Transformer
from .assembly.construction import construction
from .assembly.prefix import CausalOptions, prefix_sums
from .conjugate_gradient import fused, textbook
from .preconditioned_conjugate_gradient import iterate, jacobi_of

FORMS = {"textbook": textbook, "fused": fused}
PRECONDITIONERS = (None, "jacobi")


@construction
def prefix_conjugate_gradient(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
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

    A step takes 7 blocks, or 5 in the form "fused" (see `conjugate_gradient`).

    In a Mesa layer, $\phi_i$ is the key $k_i$ and, where it predicts, the query $q_i$; $y_i$ is the
    value $v_i$, $g_i$ the log gate, $\beta_i$ the write strength and $\lambda I$ the matrix
    $\Lambda$. Gates and strengths are in both states, as here,

    $$H_i = e^{g_i} H_{i-1} + \beta_i k_i k_i^T, \quad
    Z_i = e^{g_i} Z_{i-1} + \beta_i k_i v_i^T, \quad o_i = Z_i^T (H_i + \Lambda)^{-1} q_i$$

    The layer reads after the write: this is `prefix="inclusive"`, where $q_i = k_i$ at a support
    and $q$ is any point at a query (see `CausalOptions`). Its conjugate gradient solves
    $(H_i + \Lambda) h = q_i$ and it returns $Z_i^T h$: the same prediction after m steps, from the
    other side, but its iterates differ. For a diagonal $\Lambda$ and keys $U x$, use `Linear` with
    the projection $\Lambda^{-1/2} U$ and ridge 1, which has the same predictions. A Mesa layer has
    no preconditioner; where it decodes, it starts at $q_i$ over the diagonal of $H_i + \Lambda$.

    Args:
        ridge, steps: as in `icl_krr.constructions`, which also says what is raised.
        kernel, num_features, stores_sums, options: as in `prefix_sums`.
        form: order of the operations, "textbook" (default) or "fused".
        preconditioner: "jacobi" for the diagonal of $A$, with the form "textbook" only; default
            None: no preconditioner.

    Returns:
        A `Transformer` with the states w, r, d [T, r m] and prediction.

    Source: von Oswald et al., Uncovering mesa-optimization algorithms in transformers, 2023; von
    Oswald et al., MesaNet: sequence modeling by locally optimal test-time training, 2025.

    >>> import icl_krr as ik
    >>> model = prefix_conjugate_gradient(ik.Linear(), num_features=3, ridge=0.1, steps=3)
    >>> model.depth, model.blocks_per_step
    (25, 7)
    """
    checks.positive_scalar("ridge", ridge)
    checks.count("steps", steps)
    checks.choice("form", form, tuple(FORMS))
    if preconditioner not in PRECONDITIONERS:
        raise ValueError(f"preconditioner must be 'jacobi' or None, got {preconditioner!r}")
    if preconditioner is not None and form != "textbook":
        raise ValueError(f"form must be 'textbook' with a preconditioner, got {form!r}")
    m = prefix_sums(kernel, num_features, ridge=ridge, stores_sums=stores_sums, **options)
    scalar = xp.asarray(ridge, m.dtype)
    if preconditioner is not None:
        return iterate(m, scalar, steps, *jacobi_of(m, scalar))
    return FORMS[form](m, scalar, steps)
