"""The settings of an ablation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...catalogue import KERNELS, SITES, SOLVERS, find, taken
from ...catalogue._choices import KernelName, SiteName
from .._shared.recipe import solver_of


@dataclass(frozen=True)
class AblateConfig:
    """The model, the parts to ablate and the tasks; most are options of `icl-krr ablate`.

    A solver that reads one support at each step has by default as many steps as supports.
    """

    model: str = "conjugate_gradient"
    """A run, or a solver whose construction is ablated."""
    kernel: KernelName | None = None
    """Kernel of a construction. If None, the kernel for which the expected changes are known, or
    else the first kernel that the solver supports."""
    steps: int | None = None
    """Number of solver steps of a construction. If None, 12."""
    kinds: tuple[SiteName, ...] | None = None
    """Kinds of parts to remove.
    If None, heads and slots of a construction, or heads and MLP units of a trained model."""
    each_step: bool = False
    """Remove a part from one solver step at a time, instead of from all steps.
    Parts of a trained model are always removed from one block at a time."""
    replace: Literal["zero", "mean"] = "zero"
    """Value that replaces the removed part.
    "zero" is the number 0. "mean" is the mean over tasks and over tokens of the same role."""
    tasks: int = 64
    """Number of tasks to predict, >= 2."""
    num_queries: int = 8
    """Number of queries per task."""
    seed: int = 0
    """Seed of every random choice."""

    def __post_init__(self):
        from ..._core import checks  # imports JAX, which `--help` does without

        set_field = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        if self.steps is not None:
            checks.count("steps", self.steps)
        checks.count("tasks", self.tasks, minimum=2)
        checks.count("num_queries", self.num_queries)
        for kind in self.kinds or ():
            checks.choice("kind", kind, SITES)
        checks.choice("replace", self.replace, ("zero", "mean"))
        set_field("model", solver_of(self.model) or self.model)
        if self.constructed:
            if self.kernel is not None:
                set_field("kernel", find("kernel", KERNELS, self.kernel).name)
                checks.choice(f"kernel of {self.model}", self.kernel, taken(self.model))
            return
        for name in ("kernel", "steps"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} must be None for a run, got {getattr(self, name)!r} and the run "
                    f"{self.model!r}"
                )

    @property
    def constructed(self) -> bool:
        """Whether the model is a solver's construction."""
        return self.model in SOLVERS
