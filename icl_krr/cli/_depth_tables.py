"""Tables of demo and predict: a construction compared with exact KRR at every depth."""

import math
import re
from functools import partial
from typing import Any

from .._core.text_tables import TextTable, format_number
from ..catalogue._choices import KernelName
from ..plots import depth_figure
from ..tabular._depth import CONVERGED, DepthResult, Row, run
from ..tabular._depth_config import DepthConfig
from ..tasks import Task
from . import _output
from ._options import Construction, checked
from ._output import Outcome

Tasks = dict[str, tuple[Task, DepthConfig]]
Results = dict[str, DepthResult]


def depth_config(
    settings: Construction, preferred: KernelName | None = None, *, centred: bool = False
) -> DepthConfig:
    """Use the given kernel, else the preferred kernel, else let leave-one-out choose."""
    return checked(settings, DepthConfig, kernel=settings.kernel or preferred, centred=centred)


def solve(tasks: Tasks, show: _output.Show) -> Results:
    return {
        name: run(task, config, lambda doing, name=name: show(f"{name}: {doing}"))
        for name, (task, config) in tasks.items()
    }


def outcome(results: Results, seed: int) -> Outcome:
    """The gaps to exact KRR at every depth as tables and a figure, and what made them."""
    rows = {
        name: [row._asdict() for row in (*result.rows, *result.baselines)]
        for name, result in results.items()
    }
    tasks = {name: result.facts for name, result in results.items()}
    return Outcome(
        {"results": {name: {"rows": some} for name, some in rows.items()}},
        [part for name, result in results.items() for part in summary(name, result, seed)],
        {
            "results.csv": [{"task": name, **row} for name, some in rows.items() for row in some],
            "meta.json": {},
            "depth": partial(depth_figure, results, seed),
        },
        {"dtype": sorted({facts["dtype"] for facts in tasks.values()}), "tasks": tasks},
    )


def summary(name: str, result: DepthResult, seed: int) -> tuple[TextTable, str]:
    header = ["step", "blocks", "gap to exact", "gap to oracle", "RMSE", "alpha error", "bound"]
    facts = result.facts
    title = f"{name}: {facts['solver']}, {facts['kernel']} kernel, as a transformer"
    rows = sparse_rows(result.rows)
    steps = [[str(row.step), str(row.blocks), *map(format_number, row[3:])] for row in rows]
    baselines = [
        [row.predictor, "", format_number(row.gap), "", format_number(row.rmse), "", ""]
        for row in result.baselines
    ]
    return TextTable(title, header, [steps, baselines]), describe(facts, seed)


def sparse_rows(rows: list[Row]) -> list[Row]:
    """The rows of a few depths, sparser as the depth grows, and the row of the last depth."""
    few = {base << power for power in range(32) for base in (1, 3)} | {0, rows[-1].step}
    return [row for row in rows if row.step in few]


def describe(facts: dict[str, Any], seed: int) -> str:
    """The lines under a table: the task, its hyperparameters and the transformer."""
    few = facts["chosen_on"] < facts["n"]
    how = "marginal likelihood" if facts["each"] else "leave-one-out"
    how += f" on {facts['chosen_on']} random supports" if few else ""
    edges = {name: f"; the {edge} that was tried" for name, edge in facts["edges"].items()}
    chosen = {name: f" ({how}{edges.get(name, '')})" for name in facts["chosen"]}
    hyperparameters = ", ".join(
        f"{name.replace('smoother_', 'Nadaraya-Watson ')} = {facts[name]:.4g}{chosen.get(name, '')}"
        for name in facts["hyperparameters"]
    )
    lines = [
        f"n = {facts['n']} supports, q = {facts['q']} queries, p = {facts['p']} features, "
        f"{hyperparameters}",
        f"effective dimension d_eff = {facts['d_eff']:.4g}, condition number cond = "
        f"{facts['cond']:.4g}, relative residual of exact KRR = {facts['exact_residual']:.2g}, "
        f"dtype = {facts['dtype']}, seed = {seed}",
    ]
    errors, loo, dtype = facts["leave_one_out"], facts["loo_result"], facts["dtype"]
    if len(errors) > 1:
        of = " with one bandwidth for all features" if facts["each"] else ""
        each = ", ".join(f"{name} {error:.3g}" for name, error in errors.items())
        lines.append(
            f"kernel = {facts['kernel']}, which has the least leave-one-out RMSE{of} ({each})"
        )
    if loo and not loo["ok"]:
        lines.append(
            "nothing was learned: the mean is as good (leave-one-out RMSE "
            f"{loo['regression']:.3g} of exact KRR, {loo['mean']:.3g} of the mean of the "
            "other supports; the difference of the squares is not above two standard errors)"
        )
    if not math.isfinite(facts["exact_residual"]):
        lines.append(
            f"exact KRR is not finite: the kernel overflows {dtype} or K + ridge I is singular in "
            f"{dtype}; raise the temperature, the lengthscale or the ridge"
        )
    if hint := advice(facts):
        lines.append(hint)
    if facts["steps_because"] in ENOUGH:
        enough = ENOUGH[facts["steps_because"]].format(most=facts["most_steps"])
        lines.append(f"{facts['steps']} steps (--steps N runs N steps): {enough}")
    heads, units = (
        f"{facts[name]} {word}{'' if facts[name] == 1 else 's'}"
        for name, word in (("heads", "head"), ("mlp_width", "MLP unit"))
    )
    lines.append(
        f"{facts['attention']} attention, {facts['blocks_per_step']} blocks per step, "
        f"{facts['depth']} blocks in total, {facts['channels']} channels; no block has more than "
        f"{heads} and {units}"
    )
    return "\n".join(lines) + f"\n{COLUMNS}"


ENOUGH = {
    "converged": f"the first number with an error of at most {CONVERGED:g}",
    "nearest": "the number of at most {most} with the smallest error",
}
"""How the number of steps was chosen, if it was not given."""
COLUMNS = """\
gap to exact: |f - f*| / |f*|, where f are the predictions of the transformer and f* those of \
exact KRR. The error after the words converged or not converged is the largest |f - f*| over the \
larger of the largest |f*| and |y|
gap to oracle: |f - g| / |f*|, where g are the predictions of the solver itself, without a \
transformer. In float32 it can be large before the predictions converge
RMSE: root mean squared error at the queries. For a table, y is first divided by its standard \
deviation over the supports, for leave-one-out too
alpha error: |alpha - alpha*|_A / |alpha*|_A with A = K + ridge I
bound: proven bound on the alpha error; the gap of the predictions can increase before it converges
"""


def advice(facts: dict[str, Any]) -> str:
    """The status of the transformer in a sentence that names the options of the command line."""
    instead = r"--steps \1"
    if facts["steps_because"] == "nearest" and facts["steps"] < 0.9 * facts["most_steps"]:
        instead = "another --solver"  # more steps were tried
    text = re.sub(r"more steps \((\d+)\)", instead, facts["advice"])
    text = re.sub(r"float64(?!:)", "JAX_ENABLE_X64=1", text)
    return text.replace("larger ridge", "larger --ridge")
