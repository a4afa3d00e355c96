"""Constructions of known solvers, with parameters that suit given tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ...catalogue import Solver, candidate, load, make_kernel
from ...constructions import Softmax
from ...kernels import Kernel
from ...tasks import Task, map_tasks, system
from ...tasks.batches import each_task
from ...theory import log_sink
from ...transformer import Transformer


@dataclass(frozen=True)
class Suited:
    """Kernels, and parameters of solvers on a kernel, for batches of tasks of one family."""

    tasks: Task  # batch that sets bandwidth, ridge and step size
    others: tuple[Task, ...]  # further batches that the spectrum and the sink must suit
    condition: float  # condition number of K + ridge I, about, averaged over `tasks`
    steps: int  # number of steps of a construction

    def kernel(self, name: str) -> Kernel:
        """A kernel of the catalogue with a typical bandwidth of the tasks."""
        size = float(jnp.mean(jnp.sum(self.tasks.x**2, axis=-1)))
        return make_kernel(name, {"temperature": size, "lengthscale": size**0.5})

    def ridge(self, kernel: Kernel) -> float:
        """The largest eigenvalue of K, averaged over tasks, over the condition number."""
        return float(jnp.mean(largest(kernel, self.tasks))) / self.condition

    def high(self, kernel: Kernel) -> float:
        """The largest eigenvalue of K + ridge I over all tasks."""
        every = (float(jnp.max(largest(kernel, one))) for one in (self.tasks, *self.others))
        return max(every) + self.ridge(kernel)

    def diagonal(self, kernel: Kernel) -> jax.Array:
        """All values k(x, x) at the supports [tasks, n]."""
        return map_tasks(lambda task: kernel.diagonal(task.x), self.tasks)

    def attention(self, kernel: Kernel) -> dict[str, Any]:
        """The keyword of a construction for the weight of its sink, if it has one."""
        if kernel.featured:
            return {}
        every = (task for batch in (self.tasks, *self.others) for task in each_task(batch))
        return {"attention": Softmax(log_sink=max(int(log_sink(kernel, task)) for task in every))}

    def needs(self, row: Solver, kernel: Kernel) -> dict[str, Any]:
        """The keywords that construction and oracle of a candidate take."""
        if not row.iterates:
            return {}
        ridge, supports = self.ridge(kernel), self.tasks.num_supports
        known = {
            "ridge": ridge,
            "spectrum": (ridge, self.high(kernel)),
            "num_supports": supports,
            "step_size": 0.5 / float(jnp.mean(self.diagonal(kernel))),
        }
        own = {name: known[name] for name in row.keywords}
        return own | {"steps": supports if row.sequential else self.steps}

    def build(self, solver: str, kernel: Kernel) -> Transformer:
        """The construction of a candidate."""
        row = candidate(solver)
        return load(row.construction)(
            kernel,
            num_features=self.tasks.num_features,
            **self.needs(row, kernel),
            **(self.attention(kernel) if row.iterates else {}),
        )


@jax.jit
def largest(kernel: Kernel, tasks: Task) -> jax.Array:
    """The largest eigenvalue of K of every task."""
    return map_tasks(
        lambda task: jnp.linalg.eigvalsh(system(kernel, task).gram)[-1], tasks, chunk=1
    )
