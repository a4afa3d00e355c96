"""Figures of trained models: training, fitting and identification."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from .style import BLUE, RED, STYLES, label_ticks, legend

if TYPE_CHECKING:
    from ..experiments.identify.trained_model import Findings
    from ..experiments.shared.rows import Rows
    from ..probes import Identification


def training_figure(rows: Rows, title: str) -> Figure:
    """The loss of a training run against steps, compared with known predictors.

    With a predictive distribution, it is minus the log density of an output, else an error.
    """
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.subplots()
    steps = [row["step"] for row in rows]
    point = "." if len(rows) == 1 else ""
    unsure = "nll" in rows[-1]
    for name, color in (("loss", "#56B4E9"), ("nll" if unsure else "validation", BLUE)):
        label = "training batches" if name == "loss" else "validation tasks"
        axis.plot(steps, [row[name] for row in rows], point + "-", color=color, label=label)
    known = {name: name for name in ("exact", "nadaraya_watson", "mean", "zero")}
    if unsure:
        known = {"exact": "exact_nll", "mean": "constant_nll"}
    for name, column in known.items():
        color, style = STYLES[name]
        label = "one Gaussian" if column == "constant_nll" else name
        axis.axhline(rows[-1][column], color=color, linestyle=style, label=label)
    axis.set_yscale("linear" if unsure else "log")
    axis.set_xlim(left=0)
    label_ticks(axis, whole="x")
    axis.set_xlabel("training step")
    axis.set_ylabel(
        "minus log density of an output (nats)"
        if unsure
        else "mean squared error (units of y squared)"
    )
    axis.set_title(title, fontsize=9)
    axis.grid(alpha=0.25)
    legend(figure, axis)
    return figure


def fitting_figure(losses: list[float], units: str, title: str) -> Figure:
    """The loss of a fit against its iterations."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.subplots()
    axis.plot(range(len(losses)), losses, "o-", color=BLUE, markersize=3)
    if 0 < 10 * min(losses) < max(losses):
        axis.set_yscale("log")
    label_ticks(axis, whole="x")
    axis.set_xlabel("iteration")
    axis.set_ylabel(f"loss: {units}")
    axis.set_title(title, fontsize=9)
    axis.grid(alpha=0.25)
    return figure


def identification_figure(found: Identification, title: str) -> Figure:
    """Relative distance of every layer to every step of each candidate, and the alignment."""
    count = len(found.suspects)
    columns = min(3, count)
    lines = -(-count // columns)
    figure = Figure(figsize=(3.6 * columns, 2.6 * lines + 0.6), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    norm = LogNorm(1e-4, 1)
    for axis, suspect in zip(axes.flat, found.suspects, strict=False):
        near = suspect.distances["prediction"]
        axis.imshow(
            np.clip(np.nan_to_num(near.matrix, nan=1), 1e-4, 1),
            norm=norm,
            cmap="cividis",
            aspect="auto",
            origin="lower",
            interpolation="none",
            extent=(-0.5, near.matrix.shape[1] - 0.5, 0.5, len(near.matrix) + 0.5),
        )
        layers = range(1, len(near.matrix) + 1)
        axis.plot(suspect.fit.alignment, layers, "o-", color=RED, markersize=3, linewidth=1)
        axis.set_title(
            f"{suspect.fit.candidate}\n{suspect.fit.kernel}, {near.mean:.2g} "
            f"({near.interval[0]:.2g}, {near.interval[1]:.2g})",
            fontsize=7,
        )
        label_ticks(axis, whole="xy")
        axis.set_xlabel("solver step", fontsize=7)
        axis.set_ylabel("layer", fontsize=7)
        axis.tick_params(labelsize=6)
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    bar = figure.colorbar(ScalarMappable(norm, "cividis"), ax=axes, shrink=0.6)
    bar.set_label("|layer - step| / |layer| of the predictions", fontsize=7)
    figure.suptitle(f"{title}: {', '.join((found.status, *found.remain))}", fontsize=9)
    return figure


def filter_figure(findings: Findings, title: str) -> Figure:
    """The filter of every layer on the eigenvalues of the kernel matrix, and that of exact KRR."""
    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    axis = figure.subplots()
    found = findings.filter
    for layer in range(1, len(found.q)):
        color = colormaps["viridis"]((layer - 1) / max(1, len(found.q) - 2))
        axis.plot(found.sigma, found.q[layer], "o-", color=color, markersize=3, label=f"{layer}")
        axis.fill_between(found.sigma, found.low[layer], found.high[layer], color=color, alpha=0.2)
    exact = 1 / (found.sigma + findings.ridge)
    axis.plot(found.sigma, exact, "k--", label="exact KRR: 1 / (sigma + ridge)")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_ylim(float(exact.min()) / 4, float(exact.max()) * 4)
    label_ticks(axis)
    axis.set_xlabel("eigenvalue sigma of K")
    axis.set_ylabel("filter q(sigma), where q > 0\nd prediction / d y = k(x)^T q(K)")
    axis.set_title(f"{title}: {findings.kernel!r}, ridge {findings.ridge:.3g}", fontsize=8)
    axis.grid(alpha=0.25)
    legend(figure, axis, title="after layer", ncols=6)
    return figure


def confusion_figure(matrix: dict[tuple[str, str], dict[str, int]], seed: int) -> Figure:
    """How often each candidate (column) is not ruled out for each constructed solver (row)."""
    names = [name for name in next(iter(matrix.values())) if name != "runs"]
    figure = Figure(figsize=(7.6, 0.34 * len(matrix) + 2.6), layout="constrained")
    axis = figure.subplots()
    shares = [[counts[name] / counts["runs"] for name in names] for counts in matrix.values()]
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for i, counts in enumerate(matrix.values()):
        for j, name in enumerate(names):
            if counts[name]:
                color = "white" if counts[name] > counts["runs"] / 2 else "black"
                words = f"{counts[name]}/{counts['runs']}"
                axis.text(j, i, words, ha="center", va="center", color=color, fontsize=7)
    axis.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=7)
    axis.set_yticks(
        range(len(matrix)), [f"{solver}, {kernel}" for solver, kernel in matrix], fontsize=7
    )
    axis.set_xlabel("candidate that is not ruled out (number of models)")
    axis.set_ylabel("constructed solver, kernel")
    axis.set_title(
        f"identification of transformers with a known solver, seeds from {seed}, float64",
        fontsize=9,
    )
    return figure
