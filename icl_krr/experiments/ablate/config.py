"""The settings of an ablation."""

from __future__ import annotations

from dataclasses import dataclass

from ... import checks
from ...catalogue import KERNELS, SITES, SOLVERS, find, taken
from ..shared.recipe import solver_of


@dataclass(frozen=True)
class AblateConfig:
    """The model, the parts to ablate and the tasks.

    Args:
        model: a run, or a solver whose construction is ablated; default "conjugate_gradient".
        kernel: kernel of the construction; default: the kernel for which expectations are known,
            or the first kernel that the solver takes.
        steps: number of steps of the construction, >= 1; default 12, or the number of supports for
            a solver that takes in one support a step.
        kinds: kinds of sites to ablate; default: heads and slots of a construction, heads and MLP
            units of a run.
        each_step: whether to ablate a construction's part in each step separately; default False:
            in all steps at once.
        replace: value that replaces the ablated part, "zero" (default) or "mean".
        swap: solver whose steps also replace the blocks of a run, one block at a time; default:
            no replacement.
        tasks: number of tasks, >= 2; default 64.
        num_queries: number of queries of a task, >= 1; default 8.
        seed: seed of the tasks; default 0.

    Raises:
        ValueError: a name is unknown, a number is out of range, or an option does not fit the
            model.
    """

    model: str = "conjugate_gradient"
    kernel: str | None = None
    steps: int | None = None
    kinds: tuple[str, ...] | None = None
    each_step: bool = False
    replace: str = "zero"
    swap: str | None = None
    tasks: int = 64
    num_queries: int = 8
    seed: int = 0

    def __post_init__(self):
        set_field = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        if self.steps is not None:
            checks.stored("steps", self.steps)
        checks.count("tasks", self.tasks, minimum=2)
        checks.count("num_queries", self.num_queries)
        for kind in self.kinds or ():
            checks.choice("kind", kind, SITES)
        checks.choice("replace", self.replace, ("zero", "mean"))
        if self.swap is not None:
            steps = {name: row for name, row in SOLVERS.items() if row.iterates}
            set_field("swap", find("swap", steps, self.swap).name)
        set_field("model", solver_of(self.model) or self.model)
        if self.constructed:
            if self.kernel is not None:
                set_field("kernel", find("kernel", KERNELS, self.kernel).name)
                checks.choice(f"kernel of {self.model}", self.kernel, taken(self.model))
            if self.swap is not None:
                raise ValueError(
                    f"swap must be None for a construction, got {self.swap!r} and the "
                    f"construction {self.model!r}"
                )
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
