"""Figures of models: depth, training, fitting, identification, and without parts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from ._panels import curves_figure
from ._style import BLUE, PURPLE, RED, STYLES, cut_diverged, finish, label_ticks, legend, sheet

if TYPE_CHECKING:
    from ..experiments._ablate.ablation import Ablation
    from ..experiments._shared.rows import Rows
    from ..experiments.identify._trained_model import Findings
    from ..probes import Identification
    from ..probes._naming.distances import CandidateResult, Distance
    from ..tabular._depth import DepthResult


def depth_figure(results: dict[str, DepthResult], seed: int) -> Figure:
    """Distances to exact KRR and the error at the queries against depth, one column per task."""
    has_rmse = not any(math.isnan(row.rmse) for one in results.values() for row in one.baselines)
    figure = Figure(figsize=(5.2 * len(results), 7 if has_rmse else 4.2), layout="constrained")
    axes = figure.subplots(1 + has_rmse, len(results), squeeze=False, sharex="col")
    sentences = []
    for (name, result), column in zip(results.items(), axes.T, strict=True):
        top, bottom = column[0], column[-1]
        facts, rows = result.facts, result.rows
        solver = f"transformer: {facts['solver']}, {facts['kernel']} kernel"
        steps = [row.step for row in rows]
        for axis, values in zip(column, ("gap", "rmse"), strict=False):
            line = [getattr(row, values) for row in rows]
            axis.plot(steps, line, "o-", color=BLUE, markersize=3.5, label=solver)
            for row in sorted(result.baselines, key=lambda row: list(STYLES).index(row.predictor)):
                if not (values == "gap" and row.predictor == "exact"):
                    color, style = STYLES[row.predictor]
                    at = getattr(row, values)
                    axis.axhline(at, color=color, linestyle=style, label=row.predictor)
            axis.grid(alpha=0.25)
        errors = [row.alpha_error for row in rows]
        words = "error of alpha in the A-norm"
        top.plot(steps, errors, "s-", color=PURPLE, markersize=3.5, label=words)
        bounds = [row.bound for row in rows]
        top.plot(steps, bounds, "--", color="black", label="proven bound on the error of alpha")
        if any(row.gap > 0 for row in rows):
            top.set_yscale("log")
        sentences.append(cut_diverged(top, 1.0))
        top.set_ylabel("relative distance to exact KRR")
        top.set_title(
            f"{name}: n = {facts['n']}, p = {facts['p']}, ridge = {facts['ridge']:.3g}\n"
            f"d_eff = {facts['d_eff']:.1f}, cond = {facts['cond']:.2g}, "
            f"{facts['dtype']}, seed {seed}",
            fontsize=9,
        )
        if has_rmse:
            bottom.set_ylabel("RMSE at the queries (units of y)")
            zero = next(row.rmse for row in result.baselines if row.predictor == "zero")
            sentences.append(cut_diverged(bottom, zero))
        label_ticks(top)
        label_ticks(bottom, whole="x")
        bottom.set_xlabel(f"solver step ({facts['blocks_per_step']} blocks each)")
    words = "\n".join(dict.fromkeys(filter(None, sentences)))
    legend(figure, *axes[:, 0], ncols=2 * len(results), heading=words)
    return figure


def training_figure(rows: Rows, title: str, target: str = "y") -> Figure:
    """The loss of a training run against steps, compared with known predictors.

    With a predictive distribution, it is minus the log density of an output, else an error: against
    `target` ("y", or "exact KRR") on training batches, and against y on validation tasks.
    """
    if density := "nll" in rows[-1]:
        names = {"training batches": "loss", "validation tasks": "nll"}
        baselines = {"exact": "exact_nll", "one Gaussian": "constant_nll"}
    else:
        batches = f"training batches, against {target}"
        names = {batches: "loss", "validation tasks, against y": "validation"}
        baselines = {name: name for name in ("exact", "nadaraya_watson", "mean", "zero")}
    steps = [row["step"] for row in rows]
    curves = {label: (steps, [row[name] for row in rows]) for label, name in names.items()}
    return curves_figure(
        {"training step": curves},
        "minus log density of an output (nats)" if density else "mean squared error (y squared)",
        title,
        log="" if density else "y",
        lines={label: rows[-1][name] for label, name in baselines.items()},
    )


def fitting_figure(losses: list[float], units: str, title: str) -> Figure:
    """The loss of a fit against its iterations."""
    log = "y" if 0 < 10 * min(losses) < max(losses) else ""
    return curves_figure({"iteration": {"loss": losses}}, f"loss: {units}", title, log=log)


def identification_figure(identification: Identification, title: str) -> Figure:
    """Relative distance of every layer to every step of each candidate, and the alignment.

    Of streams, the distance is that of the decoded states, from the stream before the first layer
    on. Beside each candidate stand its steps, decoded from an untrained model.
    """
    panels = [panel for result in identification.candidates for panel in panels_of(result)]
    columns = min(4 if identification.best.stream_result else 3, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.6 * lines + 0.6), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    norm = LogNorm(1e-4, 1)
    for axis, (words, distance, result) in zip(axes.flat, panels, strict=False):
        first = int(result.stream_result is not None)  # the first step; layers then begin with 0
        layers, steps = distance.matrix.shape
        axis.imshow(
            np.clip(np.nan_to_num(distance.matrix, nan=1), 1e-4, 1),
            norm=norm,
            cmap="cividis",
            aspect="auto",
            origin="lower",
            interpolation="none",
            extent=(first - 0.5, first + steps - 0.5, 0.5 - first, layers + 0.5 - first),
        )
        at = result.fit.alignment
        axis.plot(at, range(1, len(at) + 1), "o-", color=RED, markersize=3, linewidth=1)
        low, high = distance.interval
        words += f"\n{result.fit.kernel}, {distance.mean:.2g} ({low:.2g}, {high:.2g})"
        axis.set_title(words, fontsize=7)
        label_ticks(axis, whole="xy")
        axis.set_xlabel("solver step", fontsize=7)
        axis.set_ylabel("layer", fontsize=7)
        axis.tick_params(labelsize=6)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    bar = figure.colorbar(ScalarMappable(norm, "cividis"), ax=axes, shrink=0.6)
    what = "|layer - step| / |layer| of the predictions"
    if identification.best.stream_result:
        what = "|step - decoded| / |step beyond the start|"
    bar.set_label(what, fontsize=7)
    rest = f" (not ruled out: {', '.join(identification.remain)})" if identification.remain else ""
    figure.suptitle(f"{title}: {identification.status}{rest}", fontsize=9)
    return figure


def panels_of(result: CandidateResult) -> list[tuple[str, Distance, CandidateResult]]:
    """What is drawn of a candidate: its distances and, of streams, those of an untrained model."""
    name, distance = result.fit.candidate, next(iter(result.distances.values()))
    control = "untrained model"
    panels = [(name, distance, result)]
    controls = result.stream_result.controls if result.stream_result else {}
    if control in controls:
        panels.append((f"{name}, {control}", controls[control]["state"], result))
    return panels


def filter_figure(findings: Findings, title: str) -> Figure:
    """The filter of every layer on the eigenvalues of the kernel matrix, and that of exact KRR."""
    figure, axis = sheet(6.4, 4.6)
    filters = findings.filter
    exact = 1 / (filters.sigma + findings.ridge)
    least = float(exact.min()) / 4  # a log axis has no place for q <= 0
    for layer in range(1, len(filters.q)):
        color = colormaps["viridis"]((layer - 1) / max(1, len(filters.q) - 2))
        q = np.where(filters.q[layer] > 0, filters.q[layer], np.nan)
        axis.plot(filters.sigma, q, "o-", color=color, markersize=3, label=f"{layer}")
        band = (np.maximum(end[layer], least) for end in (filters.low, filters.high))
        axis.fill_between(filters.sigma, *band, color=color, alpha=0.2, linewidth=0)
    axis.plot(filters.sigma, exact, "k--", label="exact KRR: 1 / (sigma + ridge)")
    words = "filter q(sigma) > 0; points <= 0 are not shown\nd prediction / d y = k(x)^T q(K)"
    axis.set(xscale="log", yscale="log", xlabel="eigenvalue sigma of K", ylabel=words)
    axis.set_ylim(least, float(exact.max()) * 4)
    about = f"{title}: {findings.kernel!r}, ridge {findings.ridge:.3g}"
    return finish(figure, axis, about, "", heading="after layer", ncols=len(filters.q))


LEAST = 1e-6


def ablation_figure(ablation: Ablation, title: str) -> Figure:
    """The change of the predictions without each part, and the expected change."""
    rows = [row for row in ablation.rows if "change" in row]
    figure, axis = sheet(7.2, 0.19 * len(rows) + 1.4)
    for i, row in enumerate(rows):
        change = max(row["change"], LEAST)
        axis.plot([max(row["low"], LEAST), max(row["high"], LEAST)], [i, i], color=BLUE)
        label = "" if i else "measured (95 % interval)"
        axis.plot(change, i, "o", color=BLUE, markersize=4, label=label)
    expected = [(i, row) for i, row in enumerate(rows) if "expected change" in row]
    if expected:
        at, those = zip(*expected, strict=True)
        changes = [max(row["expected change"], LEAST) for row in those]
        label = "expected: algorithm without the part"
        axis.plot(changes, at, "o", color=RED, fillstyle="none", markersize=8, label=label)
    axis.set_yticks(range(len(rows)), [row["site"] for row in rows], fontsize=6)
    axis.invert_yaxis()
    words = f"change of the predictions |f' - f| / |f| (smaller values are drawn at {LEAST:g})"
    axis.set(xscale="log", xlabel=words)
    return finish(figure, axis, title, "")
