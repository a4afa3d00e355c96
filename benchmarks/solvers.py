"""`python -m benchmarks.solvers`: print the README's table of solvers, from the catalogue."""

from __future__ import annotations

import jax

from icl_krr.catalogue import KERNELS, SOLVERS, Solver, make_kernel, taken
from icl_krr.experiments.shared.build import construct, solver_keywords
from icl_krr.files import Lines, to_markdown
from icl_krr.tasks import LinearRegression, Task, sample
from icl_krr.transformer import Transformer


def built(row: Solver, kind: str) -> Transformer | None:
    """The solver's construction on the first kernel of this kind that it takes, or None."""
    names = [name for name in taken(row.name) if KERNELS[name].kind == kind]
    if not names:
        return None
    task: Task = sample(jax.random.key(0), LinearRegression(num_features=2, num_supports=6))
    kernel = make_kernel(names[0], {})
    steps = {"steps": 2, **solver_keywords(row, kernel, task, 0.5)} if row.iterates else {}
    return construct(row.name, kernel, task, **steps)


def solver_table() -> Lines:
    """One line per solver: its call, states, blocks per step, what the model is told."""
    header = ["solver", "call", "states besides alpha and prediction"]
    header += ["blocks per step, linear attention", "blocks per step, softmax attention"]
    header += ["told besides the kernel"]
    lines = []
    for row in SOLVERS.values():
        models = [built(row, kind) for kind in ("featured", "positive")]
        layout = next(model for model in models if model is not None).layout
        states = [slot.name for slot in layout.slots if slot.kind == "state"]
        # leave out the states that softmax attention needs for any solver
        of_attention = ("alpha", "prediction", "sink", "normaliser")
        shown = [name for name in states if not name.startswith(of_attention)]
        blocks = ["" if model is None else str(model.blocks_per_step) for model in models]
        lines.append([f"`{row.name}`", f"`{row.call}`", ", ".join(shown), *blocks, row.knows])
    return header, lines


if __name__ == "__main__":
    print(to_markdown(solver_table()))
