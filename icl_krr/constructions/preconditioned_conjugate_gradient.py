"""Conjugate gradient with a Jacobi or a Nystrom preconditioner, or the softmax normaliser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

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
from .assembly.normalised_attention import NormalisedAttention
from .assembly.options import Options
from .assembly.slots import QUERIES, SUPPORTS
from .conjugate_gradient import advance_alpha, states, turn_direction
from .richardson import normalised_machine


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

    It is `icl_krr.solvers.preconditioned_conjugate_gradient`. The states are alpha, r, p and
    prediction.

    - "jacobi": the first blocks compute the diagonal of $A$. Then every token computes its own
      entry of $M^{-1} r$.
    - an `icl_krr.Nystrom`: its m features $F$ [n, m] are stored at the supports. One more linear
      head computes $M^{-1} r = (r - F C F^T r) / \lambda$ with a matrix $C$ [m, m].
    - "normaliser": the head of `richardson` computes $(D + \lambda I)^{-1} K p$, and nothing undoes
      its softmax: $M^{-1} A$ is self-adjoint in the inner product $u^T M v$, so the model runs
      conjugate gradient on $M^{-1} A$ in this inner product, and only its sums over tokens have the
      normaliser as a factor. The state z is $M^{-1} r$, and there is no state r.

    >>> import icl_krr as ik
    >>> model = preconditioned_conjugate_gradient(
    ...     ik.Linear(), num_features=3, ridge=0.1, steps=16
    ... )
    >>> model.blocks_per_step
    5
    """
    checks.positive_scalar("ridge", ridge)
    if isinstance(preconditioner, str) and preconditioner == "normaliser":
        m = normalised_machine(kernel, num_features, ridge, ridge, **options)
        return normalised(m, xp.asarray(ridge, m.dtype), steps)
    if isinstance(preconditioner, Nystrom):
        preconditioner.check(None if "sketch" in options else kernel, ridge)
    m = machine(kernel, num_features, **options).solves(ridge)
    ridge = m.scale * xp.asarray(ridge, m.dtype)
    if isinstance(preconditioner, Nystrom):
        prepare, solve = nystrom_of(m, ridge, preconditioner)
    else:
        checks.choice("preconditioner", preconditioner, ("jacobi", "normaliser"))
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


def normalised(m: NormalisedAttention, ridge: Any, steps: int) -> Transformer:
    """Run conjugate gradient on B = (D + ridge)^-1 A in the inner product of D + ridge."""
    alpha = m.state("alpha", SUPPORTS, "dual coefficients")
    z = m.state("z", SUPPORTS, "(D + ridge)^-1 (y - A alpha)")
    p = m.state("p", SUPPORTS, "search direction")
    prediction = m.state("prediction", QUERIES, "k(x)^T alpha")
    zz = m.scalar("zz", "z . (D + ridge) z / ridge")
    sink, normaliser = m.per_output(m.sink()), m.per_output(m.total_normaliser())

    def weighted(v: Read) -> Read:
        return m.multiply(v, normaliser, to=f"weighted_{v.slot}")

    def start() -> None:
        for slot in (z, p):
            m.multiply((1 / ridge) * m.y, sink, to=slot, size=1)
        m.dot(weighted(z), z, to=zz)

    def step() -> None:
        smoothed, Bp = m.smooth_all(p, to="smoothed"), m.scratch_vector("Bp", "B p")
        m.add_smooth(1, smoothed, to=Bp)
        m.multiply(p, sink, to=Bp, size=1)
        gamma = m.divide(zz, m.dot(weighted(p), Bp, to="pBp"), to="gamma")
        m.add_scaled(p, by=gamma, to=alpha)
        m.add_scaled(-Bp, by=gamma, to=z)
        fit = m.scratch("fit", QUERIES, "k(x)^T p", m.y.width)
        m.add((1 / m.scale) * m.unnormalised(smoothed), to=fit)
        m.add_scaled(fit, by=gamma, to=prediction)
        turn_direction(m, zz, weighted(z), z, p)

    return m.transformer(step, steps=steps, readout=prediction, prologue=start)
