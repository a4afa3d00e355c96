"""An ablation as settings: what is taken out of which model."""

from __future__ import annotations

from dataclasses import dataclass

from ... import checks
from ...catalogue import KERNELS, SITES, SOLVERS, find, spelled, taken


@dataclass(frozen=True)
class AblateConfig:
    """What is taken out of which model, on how many tasks.

    `model` is a run, or a solver whose construction of `steps` steps (by default 12) on the
    `kernel` it is. With `swap` every block of a run is replaced by a step of that solver as well.

    Raises ValueError for unknown names and numbers out of range.
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
        for name, least in (("steps", 1), ("tasks", 2), ("num_queries", 1)):
            if getattr(self, name) is not None:
                checks.count(name, getattr(self, name), least)
        for kind in self.kinds or ():
            checks.choice("kind", kind, SITES)
        checks.choice("replace", self.replace, ("zero", "mean"))
        if self.swap is not None:
            steps = {name: row for name, row in SOLVERS.items() if row.iterates}
            set_field("swap", find("swap", steps, self.swap).name)
        if self.constructed:
            set_field("model", spelled(self.model))
            if self.kernel is not None:
                set_field("kernel", find("kernel", KERNELS, self.kernel).name)
                checks.choice(f"kernel of {self.model}", self.kernel, taken(self.model))
            if self.swap is not None:
                raise ValueError(
                    f"swap must be left to trained models, got {self.swap} and the construction "
                    f"{self.model}"
                )
            return
        for name in ("kernel", "steps"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} must be left to constructions, got {getattr(self, name)} and the run "
                    f"{self.model}"
                )

    @property
    def constructed(self) -> bool:
        """Whether the model is a solver's construction."""
        return spelled(self.model) in SOLVERS
