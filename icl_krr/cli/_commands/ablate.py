"""`icl-krr ablate`: remove each part of a model and measure the change of the predictions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ..._core.files import to_markdown
from ..._core.text_tables import TextTable
from ...catalogue import SOLVERS
from ...experiments._ablate.config import AblateConfig
from ...experiments._shared.recipe import solver_of
from .._options import ONE_DEVICE, Command, OnDevices, checked, refuse_unused
from .._output import Outcome, working
from .._user_solver import register_file

if TYPE_CHECKING:
    from ...experiments._ablate.ablation import Ablation


EXPECTATIONS = """expectation: expected effect of the removal, in words.
expected change: |g - f| / |f|, where g are the predictions of the algorithm without the operation \
of the part, computed from K and k(x) without a transformer.
distance to expectation: |f' - g| / max(|f|, |g|).
"""


@dataclass(frozen=True)
class Ablate(Command, AblateConfig):
    """Remove each part of MODEL, one at a time, and measure how far the predictions change. Parts
    are heads, MLP units, slots (named groups of channels) and token roles (such as all queries).
    For a construction, the command also runs the algorithm without the operation that the part
    implements, and compares both results."""

    model: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="MODEL")]] = tyro.MISSING
    """A solver to construct (such as chebyshev or cg), a solver of your own as FILE.py:NAME (such
    as my.py:nesterov, a function with the mark icl_krr.solver whose keywords besides ridge,
    step_size and spectrum have defaults), a trained model of the package (such as gp-encoder) or
    the folder of an icl-krr train run."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Path | None = None
    """Folder for ablate.csv, ablate.md, meta.json, ablate.png and ablate.svg.
    If None, icl-krr-ablate-MODEL."""
    devices: OnDevices = ONE_DEVICE

    float64 = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", solver_of(self.model) or self.model)

    @property
    def folder(self) -> Path:
        return self.out or Path(f"icl-krr-ablate-{Path(self.model.split('.py:')[-1]).name}")

    def refuse_options_without_effect(self) -> None:
        if ".py:" not in self.model and self.model not in SOLVERS:
            refuse_unused(self, ["each_step"], "for a trained model, which has no solver steps")


def run(settings: Ablate) -> Outcome:
    from ...experiments._ablate.ablation import examine, table
    from ...experiments._shared.runs import find
    from ...plots import ablation_figure

    config = checked(settings, AblateConfig, model=register_file(settings.model))
    if not config.constructed:
        find(config.model, *SOLVERS)  # before a folder is made
    with working(settings) as show:
        ablation = examine(config, lambda words: show(f"{config.model}: {words}"))
    title = f"{config.model}, seed {settings.seed}, float64"
    return Outcome(
        {"rows": ablation.rows},
        printed(config, ablation),
        {
            "ablate.csv": ablation.rows,
            "ablate.md": to_markdown(table(ablation)),
            "meta.json": {},
            "ablate": partial(ablation_figure, ablation, title),
        },
        {"losses": ablation.losses},
    )


def printed(config: AblateConfig, ablation: Ablation) -> list[TextTable | str]:
    from ...experiments._ablate.ablation import table

    by = "0" if config.replace == "zero" else "its mean"
    header, lines = table(ablation)
    losses = ", ".join(f"{name} {value:.3g}" for name, value in ablation.losses.items())
    expects = any("expectation" in row for row in ablation.rows)
    return [
        TextTable(f"{config.model}: one part at a time replaced by {by}", header, [lines]),
        f"change: |f' - f| / |f| at the queries of {config.tasks} tasks; f are the predictions "
        f"of the intact model, and f' are the predictions after the replacement.\n"
        f"loss: mean squared error of f'. Losses of other predictors: {losses}.\n"
        f"{EXPECTATIONS * expects}Seed {config.seed}, float64.",
    ]
