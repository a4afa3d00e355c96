"""The tables of `benchmarks.trained`, from its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from benchmarks.profiles_tables import HOWS, share
from icl_krr.experiments.identify.error_profile import CANDIDATES
from icl_krr.experiments.identify.profile_paths import NULLS
from icl_krr.files import to_markdown
from icl_krr.plots.style import COLORS, legend
from icl_krr.probes.naming.identification import IDENTIFIED, NEAR, TIED

Row = dict[str, Any]
NAMED = (IDENTIFIED, NEAR, TIED)
IN_STREAMS = ("gradient_descent", "richardson", "preconditioned_chebyshev", "conjugate_gradient")
"""Solvers whose steps are decoded from the streams. Heavy ball's and Chebyshev's differ from those
of gradient descent by a factor after the first step, and take several times as long to fit."""
PRECONDITIONED = {
    "richardson (preconditioned)": ("richardson",),
    "richardson or preconditioned_chebyshev": ("richardson", "preconditioned_chebyshev"),
}
DECODERS, PROCESSES, FUNCTIONS = (
    "GPT-2-style decoders",
    "second grid, Gaussian processes",
    "second grid, linear functions",
)
NAMES_OF_GROUPS = (DECODERS, PROCESSES, FUNCTIONS)
ABOUT = f"""\
`python -m benchmarks.trained` reads trained models in every way that the library has. Candidates:
{", ".join(CANDIDATES)} (of the streams: {", ".join(IN_STREAMS)}). Kernel width, ridge and step size
of each are fitted anew for every reading.

- profile: the nearest solver by its errors, layer by layer (`icl-krr identify --protocol
  error-profile`), for two measures and two alignments. A linear probe reads each layer.
- probe: the nearest solver by predictions and hat matrices of these probes (`identify`).
- state, innovation: the nearest solver whose steps, or changes of steps, linear maps decode from
  the stream (`identify_streams`); a distance of 1 says nothing, 0.01 is close.
- use: the verdict of `identify_streams` with all its controls and, if a solver is left, the test
  whether the model's answer follows its decoded steps.
- filter: ridge and kernel width of the exact regression whose hat matrix is nearest to that of the
  model's own prediction, over those of the tasks, and its distance.
- Controls: nulls that run no solver, and a model of the same shape with random weights.
- A probe reads every layer but the last, where the model itself predicts. A model with random
  weights is read by a probe of its last layer, too.
- Preconditioned Chebyshev is no candidate on linear functions, where Richardson has the
  exponential kernel and the streams are compared with two solvers. Newton-Schulz is none on
  Gaussian processes. "error / exact" is that of the 16 tasks that are scored.
"""


def group_of(name: str) -> str:
    if "-depth" in name:
        return DECODERS
    return PROCESSES if name.startswith("gp-") else FUNCTIONS


def profile(row: Row, how: tuple[str, str], of: str = "model") -> Row:
    every = row[of]["profile"]["readings"]
    return next(one for one in every if (one["measure"], one["alignment"]) == how)


def far(said: Row, name: str) -> float:
    return next(one["distance"] for one in said["candidates"] if one["candidate"] == name)


def nearest_far(said: Row) -> float:
    return far(said, said["nearest"])


def least_null(said: Row) -> float:
    return min(one["distance"] for one in said["candidates"] if one["candidate"] in NULLS)


def nearest(found: Row, *spaces: str) -> tuple[str, float]:
    """The candidate with the least distance in these spaces, and the mean of its distances."""
    size = lambda one: sum(one[space]["mean"] for space in spaces) / len(spaces)  # noqa: E731
    best = min(found["candidates"], key=size)
    return best["candidate"], size(best)


READINGS: dict[str, Callable[[Row], str]] = {
    **{
        f"profile: {measure}, {how}": lambda row, key=(measure, how): profile(row, key)["nearest"]
        for measure, how in HOWS
    },
    "probe": lambda row: nearest(row["probe"], "prediction", "hat")[0],
    "state": lambda row: nearest(row["streams"], "state")[0],
    "innovation": lambda row: nearest(row["streams"], "innovation")[0],
}
"""The nearest solver by each reading, whatever its distance."""


STREAM_SPACES = (("streams", "state"), ("streams", "innovation"))


def agree(row: Row) -> bool:
    """Whether all readings have the same nearest solver of those that all of them compare."""
    common = {one["candidate"] for one in row["streams"]["candidates"]}
    found = set()
    for how in HOWS:
        here = [one for one in profile(row, how)["candidates"] if one["candidate"] in common]
        found.add(min(here, key=lambda one: one["distance"])["candidate"])
    for part, *spaces in (("probe", "prediction", "hat"), *STREAM_SPACES):
        here = [one for one in row[part]["candidates"] if one["candidate"] in common]
        found.add(nearest({"candidates": here}, *spaces)[0])
    return len(found) == 1


def null_is_nearer(row: Row, how: tuple[str, str]) -> bool:
    """Whether a null is nearer than every solver."""
    said = profile(row, how)
    return least_null(said) < nearest_far(said)


def nearest_control(row: Row, part: str, space: str) -> float:
    return min(one[space] for one in row[part]["controls"].values() if space in one)


def nearer_than_controls(row: Row, part: str, space: str) -> bool:
    """Whether the nearest solver is nearer than every control."""
    return nearest(row[part], space)[1] < nearest_control(row, part, space)


def grouped(rows: dict[str, Row]) -> dict[str, dict[str, Row]]:
    found = {
        group: {name: row for name, row in rows.items() if group_of(name) == group}
        for group in NAMES_OF_GROUPS
    }
    return {group: own for group, own in found.items() if own}


def counts(rows: Iterable[Row], of: Callable[[Row], str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in Counter(map(of, rows)).most_common())


def names_table(rows: dict[str, Row]) -> tuple[list[str], list[list[str]]]:
    """The nearest solver by each reading: number of models, by group."""
    header = ["reading", *(f"{group} ({len(own)})" for group, own in grouped(rows).items())]
    lines = [
        [name, *(counts(own.values(), of) for own in grouped(rows).values())]
        for name, of in READINGS.items()
    ]
    return header, lines


def agreement_table(rows: dict[str, Row]) -> tuple[list[str], list[list[str]]]:
    """What can be said of the models of each group, with counts."""
    profiles = [name for name in READINGS if name.startswith("profile")]
    first = HOWS[0]
    statements: dict[str, Callable[[Row], bool]] = {
        "all four profiles have the same nearest solver": lambda row: (
            len({READINGS[name](row) for name in profiles}) == 1
        ),
        "all seven readings have the same nearest solver, of the solvers that all compare": agree,
        **{
            f"error, {how}: the nearest is {words}{whose}": (
                lambda row, how=how, names=names, of=of: (
                    profile(row, ("error", how), of)["nearest"] in names
                )
            )
            for how in ("1:1", "monotone")
            for words, names in PRECONDITIONED.items()
            for whose, of in (("", "model"), (", of the untrained model", "untrained"))
        },
        "error, 1:1: richardson is the nearest or as near": lambda row: (
            "richardson" in (profile(row, first)["nearest"], *profile(row, first)["as near"])
        ),
        "error, 1:1: one solver for certain, no other and no null as near": lambda row: (
            not profile(row, first)["as near"]
        ),
        "error, 1:1: a null, which runs no solver, is as near": lambda row: bool(
            {*profile(row, first)["as near"]} & {*NULLS}
        ),
        **{
            f"{measure}, {how}: a null is nearer than every solver": (
                lambda row, key=(measure, how): null_is_nearer(row, key)
            )
            for measure, how in HOWS
        },
        **{
            f"{words}: the nearest solver is nearer than every control": (
                lambda row, part=part, space=space: nearer_than_controls(row, part, space)
            )
            for words, part, space in (
                ("predictions of a probe", "probe", "prediction"),
                ("hat matrices of a probe", "probe", "hat"),
                ("state", "streams", "state"),
                ("innovation", "streams", "innovation"),
            )
        },
        "the untrained model has the same nearest solver (error, 1:1)": lambda row: (
            profile(row, first)["nearest"] == profile(row, first, "untrained")["nearest"]
        ),
        "probe: a solver is close (0.1 in predictions and hat matrices)": lambda row: (
            row["probe"]["status"] in NAMED
        ),
        "streams: a solver is named or close": lambda row: row["streams"]["status"] in NAMED,
    }
    header = ["statement", *(f"{group} ({len(own)})" for group, own in grouped(rows).items())]
    lines = [
        [words, *(share(map(true, own.values())) for own in grouped(rows).values())]
        for words, true in statements.items()
    ]
    return header, lines


def distances_table(rows: dict[str, Row]) -> tuple[list[str], list[list[str]]]:
    """Median distance of the nearest solver, of the nearest null, and of untrained models."""
    header = ["reading", *(f"{group} ({len(own)})" for group, own in grouped(rows).items())]

    def middle(own: dict[str, Row], of: Callable[[Row], float]) -> str:
        return f"{median(map(of, own.values())):.2g}"

    lines = []
    for how in HOWS:
        cells = []
        for own in grouped(rows).values():
            solver = middle(own, lambda r, k=how: far(profile(r, k), profile(r, k)["nearest"]))
            null = middle(own, lambda r, k=how: least_null(profile(r, k)))
            other = middle(
                own,
                lambda r, k=how: far(
                    profile(r, k, "untrained"), profile(r, k, "untrained")["nearest"]
                ),
            )
            cells.append(f"{solver}; null {null}; untrained {other}")
        lines.append([f"profile: {how[0]}, {how[1]} (log10)", *cells])
    for words, part, space in (
        ("probe: predictions", "probe", "prediction"),
        ("probe: hat matrices", "probe", "hat"),
        ("state", "streams", "state"),
        ("innovation", "streams", "innovation"),
    ):
        cells = []
        for own in grouped(rows).values():
            solver = middle(own, lambda r, p=part, s=space: nearest(r[p], s)[1])
            control = middle(own, lambda r, p=part, s=space: nearest_control(r, p, s))
            cells.append(f"{solver}; nearest control {control}")
        lines.append([words, *cells])
    cells = []
    for own in grouped(rows).values():
        trained = middle(own, lambda r: r["model"]["filters"][-1]["distance"])
        other = middle(own, lambda r: r["untrained"]["filters"][-1]["distance"])
        cells.append(f"{trained}; untrained {other}")
    lines.append(["filter: exact regression, last layer", *cells])
    return header, lines


def models_table(rows: dict[str, Row]) -> tuple[list[str], list[list[str]]]:
    """Every model: its error, the nearest solver by each reading, and the verdicts."""
    header = ["model", "error / exact", "profile: error, 1:1", "as near", "error, monotone"]
    header += ["probe", "state", "innovation", "streams, with use", "filter: distance"]
    lines = []
    for name, row in rows.items():
        said, last = profile(row, HOWS[0]), row["model"]["filters"][-1]
        others = profile(row, HOWS[2])
        pairs = [(row["probe"], ("prediction", "hat"))]
        pairs += [(row["streams"], (space,)) for space in ("state", "innovation")]
        near = [nearest(found, *spaces) for found, spaces in pairs]
        verdict = row["streams"]["status"]
        if verdict in NAMED:
            verdict += f": {', '.join(row['streams']['remain'])}"
        error = 10 ** row["model"]["profile"]["log10 after layers"]["error"][-1]
        lines.append([
            name,
            f"{error / row['errors']['exact']:.3g}",
            f"{said['nearest']}, {far(said, said['nearest']):.2g}",
            ", ".join(said["as near"]) or "-",
            f"{others['nearest']}, {far(others, others['nearest']):.2g}",
            *(f"{who}, {size:.2g}" for who, size in near),
            verdict,
            f"{last['distance']:.2g}",
        ])  # fmt: skip
    return header, lines


def distances_figure(rows: dict[str, Row]) -> Figure:
    """Every model: the distance of its nearest solver, and that of the nearest control."""
    figure = Figure(figsize=(12, 4.4), layout="constrained")
    axes = figure.subplots(1, 3)

    panels: dict[str, Callable[[Row], tuple[float, float]]] = {
        "error profile, 1:1 (log10)": lambda row: (
            nearest_far(profile(row, HOWS[0])),
            least_null(profile(row, HOWS[0])),
        ),
        "hat matrices of a linear probe": lambda row: (
            nearest(row["probe"], "hat")[1],
            nearest_control(row, "probe", "hat"),
        ),
        "states decoded from the stream": lambda row: (
            nearest(row["streams"], "state")[1],
            nearest_control(row, "streams", "state"),
        ),
    }
    for axis, (title, of) in zip(axes, panels.items(), strict=True):
        for (group, own), color in zip(grouped(rows).items(), COLORS, strict=False):
            x, y = zip(*map(of, own.values()), strict=True)
            axis.plot(x, y, "o", color=color, markersize=4, alpha=0.8, label=group)
        axis.axline((1, 1), slope=1, color="black", linewidth=0.8, label="equal")
        axis.set(xscale="log", yscale="log", xlabel="distance of the nearest solver")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("distance of the nearest control")
    figure.suptitle("Trained models (tasks with seed 0, float64)", fontsize=11)
    legend(figure, *axes)
    return figure


def markdown(rows: dict[str, Row]) -> str:
    tables = {
        "The nearest solver by each reading, whatever its distance (number of models)": names_table,
        "Statements, and of how many models they are true (Wilson's 95 % interval)": (
            agreement_table
        ),
        "Median distances: the nearest solver; its control": distances_table,
        "Models, one by one": models_table,
    }
    parts = [ABOUT, f"{len(rows)} models.\n"]
    parts += [f"{title}:\n\n{to_markdown(make(rows))}\n" for title, make in tables.items()]
    return "\n".join(parts)
