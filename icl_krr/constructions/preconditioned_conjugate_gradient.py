"""Conjugate gradient with a Jacobi or a Nystrom preconditioner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from jaxtyping import Array, Float

from .. import checks
from ..constants import xp
from ..kernels import Kernel
from ..residual import Read
from ..sketches import Nystrom
from ..transformer.weights import Transformer
from .assembly.arithmetic import repeat
from .assembly.choice import construction, machine
from .assembly.linear_attention import LinearAttention
from .assembly.machine import Machine
from .assembly.options import Options
from .assembly.slots import SUPPORTS
from .conjugate_gradient import advance_alpha, states, turn_direction


@construction
def preconditioned_conjugate_gradient(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    steps: int,
    preconditioner: str | Nystrom = "jacobi",
    **options: Unpack[Options],
) -> Transformer:
    r"""Build a transformer that runs preconditioned conjugate gradient on $A \alpha = y$.

    The states are alpha, r, p and prediction. The equations are those of
    `icl_krr.solvers.preconditioned_conjugate_gradient`, with $A = K + \lambda I$ and the
    preconditioner $M$:

    - "jacobi": $M$ is the diagonal of $A$. The first blocks compute the diagonal. Then every token
      computes its own entry of $M^{-1} r$.
    - an `icl_krr.Nystrom`: its m features $F$ [n, m] are stored at the supports. One more linear
      head computes $M^{-1} r = (r - F C F^T r) / \lambda$ with a matrix $C$ [m, m], so this
      preconditioner needs linear attention.

    Args:
        kernel, num_features, ridge, steps, options: as in `icl_krr.constructions`.
        preconditioner: "jacobi" (default), or an `icl_krr.Nystrom`, which may be traced.

    Source: Saad, Iterative methods for sparse linear systems, algorithm 9.1.

    >>> import icl_krr as ik
    >>> model = preconditioned_conjugate_gradient(
    ...     ik.Linear(), num_features=3, ridge=0.1, steps=16
    ... )
    >>> model.blocks_per_step
    5
    """
    checks.positive_scalar("ridge", ridge)
    if isinstance(preconditioner, Nystrom):
        preconditioner.check(None if "sketch" in options else kernel, ridge)
    m = machine(kernel, num_features, **options).solves(ridge)
    ridge = m.scale * xp.asarray(ridge, m.dtype)
    if isinstance(preconditioner, Nystrom):
        prepare, solve = nystrom_of(m, ridge, preconditioner)
    else:
        checks.choice("preconditioner", preconditioner, ("jacobi",))
        prepare, solve = jacobi_of(m, ridge)
    return iterate(m, ridge, steps, prepare, solve)


def iterate(
    m: Machine,
    ridge: float | Float[Array, ""],
    steps: int,
    prepare: Callable[[], None],
    solve: Callable[[Read, Read], None],
) -> Transformer:
    """Build the model; `prepare` runs before the first step, `solve(r, z)` adds M^-1 r to z."""
    slots = _, r, p, prediction = states(m, starts_as=None)
    rz = m.scalar("rz", "r . z")
    z = m.scratch_vector("z", "M^-1 r")

    def start() -> None:
        prepare()
        solve(r, z)
        m.add(z, to=p)
        m.dot(r, z, to=rz)

    def step() -> None:
        advance_alpha(m, ridge, rz, slots)
        solve(r, z)
        turn_direction(m, rz, r, z, p)

    return m.transformer(step, steps=steps, readout=prediction, prologue=start)


def jacobi_of(m: Machine, ridge: float | Float[Array, ""]) -> tuple[Callable, Callable]:
    at, width = m.unknowns_at, m.diagonal_width
    inverse = m.state("inverse_diagonal", at, "1 / diagonal of A", width=width)
    one = repeat(m.inside(at), width)

    def prepare() -> None:
        diagonal = m.scratch("diagonal", at, "diagonal of A", width=width)
        m.kernel_diagonal(diagonal)
        m.add(ridge * one, to=diagonal)
        m.divide(m.scale * one, diagonal, to=inverse)

    def solve(r: Read, z: Read) -> None:
        m.multiply(r, m.per_unknown(inverse), to=z)

    return prepare, solve


def nystrom_of(
    m: Machine, ridge: float | Float[Array, ""], preconditioner: Nystrom
) -> tuple[Callable, Callable]:
    if not isinstance(m, LinearAttention):
        raise ValueError(
            "attention must be 'linear' for a Nystrom preconditioner, "
            f"got {m.spec.attention!r}; use preconditioner='jacobi'"
        )
    landmarks, mix, core = (
        xp.asarray(a, m.dtype)
        for a in (preconditioner.landmarks, preconditioner.mix, preconditioner.core)
    )
    directions = xp.matmul(m.features_at(landmarks).T, mix)
    F = m.state("nystrom", SUPPORTS, "Nystrom features", width=preconditioner.rank)

    def prepare() -> None:
        m.add(m.features @ directions, to=F)

    def solve(r: Read, z: Read) -> None:
        m.add((1 / ridge) * r, to=z)
        m.head(query=(-1 / ridge) * (F @ core), key=F, value=r, to=z)

    return prepare, solve
