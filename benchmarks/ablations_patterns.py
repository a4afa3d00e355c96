"""Patterns of ablations: their distances, the nearest solver, and statements about a pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.ablations_models import CANDIDATES, EFFECTS, KIND, PARTS
from icl_krr.experiments.solverbench.score import Share
from icl_krr.probes.resampling import INTERVAL_QUANTILES, paired_differences, resamples

RANGE = (1e-3, 1e3)
"""Effects are cut to this range: an effect below it is none."""
PLACES = 6
"""Relative depths at which patterns of models with different depths are compared."""
NOTABLE = np.log10(1.05)
"""An effect of less than 5 % is not counted as one in statements."""
SETS = {"whole layers": ("layer",), "heads": ("heads",), "heads, MLP, whole layers": PARTS}

Record = dict[str, Any]
Names = tuple[str, ...]


class Effects(NamedTuple):
    """Logarithms (base 10) of the effects of a model, of all tasks first, then of resamples.

    Attributes:
        logs: {(replaced by, effect): [1 + resamples, parts, L]}.
        profile: errors of a linear probe over those of exact KRR [1 + resamples, L + 1], or None.
        ratio: error of the intact model over that of exact KRR [1 + resamples].
    """

    logs: dict[tuple[str, str], np.ndarray]
    profile: np.ndarray | None
    ratio: np.ndarray


def effects_of(row: Record, number: int, seed: int) -> Effects:
    """The effects on all tasks, and on bootstrap resamples of the tasks, the same for all rows."""
    intact = {name: np.asarray(row["intact"][name]) for name in EFFECTS}
    count = len(intact["change"])
    weights = np.concatenate([np.ones((1, count)), resamples(count, number, seed)])
    logs = {}
    for replaced, squares in row["removed"].items():
        for name in EFFECTS:
            power = 1.0 if name == "target" else 0.5
            total = np.einsum("rb,plb->rpl", weights, np.asarray(squares[name]))
            size = np.maximum(weights @ intact[name], np.finfo(float).tiny)[:, None, None]
            logs[replaced, name] = np.log10(((total / size) ** power).clip(*RANGE))
    exact = weights @ np.asarray(row["exact error"])
    profile = None
    if "profile" in row:
        profile = (weights @ np.asarray(row["profile"])) / exact[:, None]
    return Effects(logs, profile, (weights @ intact["target"]) / exact)


def at_places(logs: np.ndarray) -> np.ndarray:
    """A pattern [..., L] at `PLACES` relative depths, interpolated between the layers."""
    layers = logs.shape[-1]
    where = (np.arange(PLACES) + 0.5) / PLACES * layers - 0.5
    below = np.clip(np.floor(where), 0, layers - 1).astype(int)
    above = np.minimum(below + 1, layers - 1)
    share = np.clip(where - below, 0, 1)
    return (1 - share) * logs[..., below] + share * logs[..., above]


def pattern(found: Effects, key: tuple[str, str], parts: Iterable[str]) -> np.ndarray:
    """The pattern [1 + resamples, numbers] of some parts at common relative depths."""
    chosen = found.logs[key][:, [PARTS.index(part) for part in parts]]
    return at_places(chosen).reshape(len(chosen), -1)


class Nearest(NamedTuple):
    """The solver with the nearest pattern.

    Attributes:
        name: its name.
        distance: root mean square difference of the logarithms (base 10) of the effects.
        others: distances of all other names.
        as_near: names that paired intervals do not tell from the nearest.
    """

    name: str
    distance: float
    others: dict[str, float]
    as_near: list[str]


def nearest(own: np.ndarray, by_name: dict[str, list[np.ndarray]]) -> Nearest:
    """Compare a pattern with the patterns of each name, of which the nearest counts."""
    distances = np.stack([
        np.min([np.sqrt(np.mean((own - other) ** 2, axis=1)) for other in others], axis=0)
        for others in by_name.values()
    ])  # fmt: skip
    names, every = list(by_name), np.ones(len(by_name), bool)
    found = paired_differences(distances[:, :1], distances[:, None, 1:], every)
    near = [name for name, low in zip(names, found.low[:, 0], strict=True) if low <= 0]
    each = dict(zip(names, distances[:, 0].tolist(), strict=True))
    return Nearest(names[found.leader], each[names[found.leader]], each, near)


def by_solver(patterns: list[np.ndarray], names: list[str]) -> dict[str, list[np.ndarray]]:
    found: dict[str, list[np.ndarray]] = {}
    for name, one in zip(names, patterns, strict=True):
        found.setdefault(name, []).append(one)
    return found


def add_case(line: list[int], holds: bool | None) -> None:
    """Count a case [holds, all]; None is no case."""
    if holds is not None:
        line[0] += bool(holds)
        line[1] += 1


class Score(NamedTuple):
    """How often the nearest pattern of another setting belongs to the same solver."""

    right: Share
    alone: Share  # right, and no other solver is as near
    lone: Share  # right, of those models for which no other solver is as near as the nearest
    among: Share  # the right solver is among those that are as near
    size: float  # mean number of solvers that are as near, the nearest included
    said: dict[str, dict[str, int]]  # {solver: {nearest solver: count}}
    by_variant: dict[str, list[int]]  # {variant of the model: [right, models]}
    within: float  # 95 % quantile of the distances between settings of one solver
    between: float  # 5 % quantile of the distances between settings of different solvers


Patterns = list[np.ndarray]


def offers(
    rows: list[Record], patterns: Patterns, i: int, other_family: bool = False
) -> dict[str, Patterns]:
    """The patterns of all other settings than that of a model, by solver."""
    kept = [
        (other["solver"], one)
        for other, one in zip(rows, patterns, strict=True)
        if (other["family"] != rows[i]["family"]) == other_family
        and (other_family or other["variant"] != rows[i]["variant"])
    ]
    return by_solver([one for _, one in kept], [name for name, _ in kept])


def confusion(
    rows: list[Record], patterns: Patterns, other_family: bool = False, names: Names = CANDIDATES
) -> Score:
    """Leave one setting out: name each model by the nearest pattern of all other settings.

    With `other_family`, the patterns are those of models on the other family of tasks, and solvers
    that this family does not have are not asked for.
    """
    said: dict[str, dict[str, int]] = {}
    by_variant: dict[str, list[int]] = {}
    rights, near, among, within, between = [], [], [], [], []
    for i, row in enumerate(rows):
        offered = offers(rows, patterns, i, other_family)
        for name, others in offered.items():
            gaps = [np.sqrt(np.mean((patterns[i][0] - one[0]) ** 2)) for one in others]
            (within if name == row["solver"] else between).extend(gaps)
        if row["solver"] not in names or row["solver"] not in offered:
            continue
        one = nearest(patterns[i], offered)
        line = said.setdefault(row["solver"], {})
        line[one.name] = line.get(one.name, 0) + 1
        rights.append(one.name == row["solver"])
        near.append(len(one.as_near))
        among.append(row["solver"] in one.as_near)
        add_case(by_variant.setdefault(row["variant"], [0, 0]), rights[-1])
    lone = [right for right, count in zip(rights, near, strict=True) if count == 1]
    return Score(
        Share.of(sum(rights), len(rights)),
        Share.of(sum(lone), len(rights)),
        Share.of(sum(lone), len(lone)),
        Share.of(sum(among), len(rights)),
        float(np.mean(near)),
        said,
        by_variant,
        float(np.quantile(within, 0.95)),
        float(np.quantile(between, 0.05)),
    )


def strangers(rows: list[Record], patterns: Patterns, limit: float) -> dict[str, list[int]]:
    """Models whose solver is not offered: how many are given the name of one candidate alone.

    These are models that run no candidate, and candidates without the patterns of their own solver.
    A name counts if its distance is at most `limit` and no other candidate is as near.
    """
    found: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        offered = offers(rows, patterns, i)
        offered = {n: o for n, o in offered.items() if n in CANDIDATES and n != row["solver"]}
        one = nearest(patterns[i], offered)
        named = len(one.as_near) == 1 and one.distance <= limit
        add_case(found.setdefault(KIND[row["solver"]], [0, 0]), named)
    return found


def interval(values: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of values of which the first is that of all tasks."""
    low, high = np.quantile(values[1:], INTERVAL_QUANTILES)
    return float(low), float(high)


def above(values: np.ndarray, least: float = NOTABLE) -> bool:
    """Whether the value of all tasks is at least `least` and its interval lies above 0."""
    return bool(values[0] >= least and interval(values)[0] > 0)


def of_part(found: Effects, part: str, effect: str, replaced: str) -> np.ndarray:
    return found.logs[replaced, effect][:, PARTS.index(part)]


def heads_most(found: Effects, replaced: str) -> bool:
    gap = of_part(found, "heads", "change", replaced) - of_part(found, "units", "change", replaced)
    return above(np.mean(gap, axis=1))


def hurts(part: str, least: float) -> Callable[[Effects, str], bool]:
    def holds(found: Effects, replaced: str) -> bool:
        logs = of_part(found, part, "target", replaced)
        return float(np.mean([above(one) for one in logs.T])) >= least

    return holds


def trend(sign: int) -> Callable[[Effects, str], bool]:
    def holds(found: Effects, replaced: str) -> bool:
        logs = of_part(found, "layer", "change", replaced)
        half = logs.shape[1] // 2
        late = np.mean(logs[:, -half:], axis=1) - np.mean(logs[:, :half], axis=1)
        return above(sign * late)

    return holds


def falls(found: Effects, replaced: str) -> bool | None:
    if found.profile is None:
        return None
    return bool(np.all(np.diff(found.profile[0]) < 0))


STATEMENTS: dict[str, Callable[[Effects, str], bool | None]] = {
    "removing the heads of a layer changes the predictions more than removing its MLP": heads_most,
    "removing the heads hurts, in most layers": hurts("heads", 0.5),
    "removing the MLP hurts, in most layers": hurts("units", 0.5),
    "removing any layer hurts": hurts("layer", 1.0),
    "late layers matter less": trend(-1),
    "late layers matter more": trend(1),
    "the error of a linear probe falls at every layer": falls,
}
"""Statements about a model, by what decides them from its effects and the kind of removal."""
