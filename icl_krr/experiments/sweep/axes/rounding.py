"""Axis "rounding": prefix solvers with some slots in half precision, over condition numbers."""

from __future__ import annotations

from typing import Any

import jax

from .... import theory
from ....probes import round_slots
from ....tasks import Task
from ....transformer import predict
from ...shared.build import construct
from ...shared.rows import Plot
from ..config import SweepConfig
from ..setting import Models, Setting, kernel_of

SOLVERS = {"mesa": "prefix_conjugate_gradient", "chebyshev": "prefix_chebyshev"}
SLOTS = {
    "C": ("C",),
    "vectors": ("w", "r", "d"),
    "sums": ("rr", "rr_next", "dAd"),
}
"""The slots of a part: the state of the layer, the vectors of the solver, its inner products."""


def build(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    """The gap is that to the same model without rounding: what rounding alone changes."""
    solver, part, dtype = line.split()
    kernel = kernel_of(config)
    top = theory.eigenvalues(kernel, task)[-1]
    ridge = top / (value - 1)
    spectrum = {"spectrum": (ridge, top + ridge)} if solver == "chebyshev" else {}
    model = construct(
        SOLVERS[solver], kernel, task, ridge=ridge, steps=config.steps, stores_sums=True, **spectrum
    )
    hooks = round_slots(model, dict.fromkeys(SLOTS[part], dtype))
    return Setting(model, task, predict(model, task), hooks=hooks)


PLOT = Plot("value", "gap", ("line",), logx=True)
AXIS = Models(build, PLOT, against="the same model without rounding")
