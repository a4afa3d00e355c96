"""The tables of `benchmarks.streams`, from its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from benchmarks.streams_models import (
    JUNK,
    NOISE,
    NORMED,
    PLAIN,
    POWERS,
    RANDOM,
    SINGLE,
    STRANGER,
    SUPERPOSED,
    TRAINED,
)
from icl_krr.catalogue import candidate
from icl_krr.experiments.solverbench.score import OUTCOMES, Share, outcome
from icl_krr.experiments.solverbench.verdicts import IDENTIFIED, NEAR, NONE, TIED, Verdict
from icl_krr.files import Lines, to_markdown

Row = dict[str, Any]
KNOWN = (PLAIN, JUNK, SUPERPOSED, TRAINED, NORMED, NOISE, SINGLE)
ENCODER, SPACES = "trained encoder", ("state", "innovation")
READINGS = {
    "probe": "`identify` on a linear probe that is fitted to y at the queries",
    "factor": "`identify_streams` on the probe's answer: a factor and an offset for each layer",
    "state": "nearest candidate by the state, at most 0.01 away",
    "innovation": "nearest candidate by the innovation, at most 0.01 away",
    "streams": "`identify_streams` with all its controls, as if use were not measured",
    "use": "the verdict of `identify_streams`",
}
SAME = 0.01
"""A model with noise that is at most this far from the oracle still runs its solver."""

ABOUT = """\
`python -m benchmarks.streams` reads the models of SolverBench through their streams alone, with
`identify_streams`: 6 layers, 16 tasks to fit and 16 to score, all candidates of the catalogue on
the model's kernel, 12 steps. Prefix conjugate gradient takes as long as all others together; it is
offered only where it is the truth. Streams are rotated at random.

- junk: channels that no solver has are appended in every layer, layer 0 too, and all are rotated
  together: cosines and tanh of random projections of the query, of the supports' x and y, and of
  both, as large as the stream. Half are the same in all layers, half drift from layer to layer.
- superposed: the stream has 1 or 2 channels fewer than the construction.
- fine-tuned: 100 updates of Adam on the tasks, from the construction on.
- LayerNorm: each token's rotated channels are centred and divided by their size before they are
  read, as a pre-norm block would read them. The model itself has no LayerNorm.
- noise: every weight is multiplied by 1 + level z, z standard normal; the stream is then rotated.
- float32: tasks and weights in float32.
- A model with junk or LayerNorm, and a causal or one-layer model, is read as a function: its use of
  the steps is not measured.
"""


def markdown(record: dict[str, Any]) -> str:
    """All tables, and which of the cases were not run."""
    rows, left = record["rows"], record["meta"]["not run"]
    words = [f"- {name}: {about}." for name, about in READINGS.items()]
    ends = f"Not run (models): {counted(left)}." if left else "All cases were run."
    parts = [ABOUT, f"{len(rows)} verdicts. {ends}\n", *record["meta"].get("notes", ())]
    tables: dict[str, Callable[[list[Row]], Lines]] = {
        "Readings side by side, on models of seed 0 (Wilson's 95 % interval). Readings of a probe "
        "were run on fewer models": readings,
        "Known models in disguises": disguises,
        "Noise on the weights, by solver: verdicts, and distance of the model's own answers to the "
        "oracle": noise,
        "float32: distance of the right candidate": single,
        "Strangers, one by one": strangers,
        "Untrained encoders and random functions": randoms,
        "Trained encoders: distance of a candidate over the smaller one of two untrained models": (
            encoders
        ),
        "Known models that are not named right, one by one": missed,
        "Seconds of a verdict": seconds,
    }
    for title, make in tables.items():
        header, lines = make(rows)
        title += ":\n\n" + "\n".join(words) if make is readings else ""
        parts.append(f"{title}\n\n{to_markdown((header, lines)) if lines else 'Not run.'}\n")
    return "\n".join(parts)


def counted(cases: Iterable[tuple]) -> str:
    """How many cases there are of each kind."""
    groups: dict[str, int] = {}
    for kind, tasks, _, _, level, seed, probed in cases:
        words = f"{kind}{f' {level:g}' if level else ''}, {tasks}, seed {seed}"
        words += ", probed" if probed else ""
        groups[words] = groups.get(words, 0) + 1
    return "; ".join(f"{words} ({count})" for words, count in groups.items())


def said_of(row: Row, reading: str = "use") -> Verdict:
    found = row["readings"].get(reading) or row
    return Verdict(found["status"], tuple(found["names"]))


def of(rows: Iterable[Row], *kinds: str) -> list[Row]:
    return [row for row in rows if row["kind"] in kinds]


def outcome_of(row: Row, reading: str = "use") -> str:
    return outcome({"names": row["right"]}, said_of(row, reading))


def shares(found: list[str], names: Iterable[str]) -> list[str]:
    return [str(Share.of(found.count(name), len(found))) for name in names]


def readings(rows: list[Row]) -> Lines:
    """What every reading says of rotated models, of models with noise, and of strangers."""
    header = ["reading", "models", "right", "among", "close", "none", "close to another", "wrong"]
    header += ["strangers named", "strangers close to"]
    lines = []
    for reading in READINGS:
        read = [row for row in rows if reading in row["readings"] and row["seed"] == 0]
        noisy = of(read, NOISE)
        groups = {
            "rotated": of(read, PLAIN),
            f"noise, within {SAME:g} of the oracle": [r for r in noisy if is_same(r)],
            f"noise, farther than {SAME:g}": [r for r in noisy if not is_same(r)],
        }
        open_set = [said_of(row, reading).status for row in of(read, STRANGER)]
        named = Share.of(open_set.count(IDENTIFIED) + open_set.count(TIED), len(open_set))
        near = Share.of(open_set.count(NEAR), len(open_set))
        for i, (words, some) in enumerate(groups.items()):
            found = shares([outcome_of(row, reading) for row in some], OUTCOMES)
            ends = ["", ""] if i else [str(named), str(near)]
            lines.append([reading, words, *found, *ends])
    return header, lines


def is_same(row: Row) -> bool:
    """Whether a model with noise still runs its solver."""
    return row["distance to oracle"] <= SAME


def group_of(row: Row) -> str:
    level = f" {row['level']:g}" if row["level"] else ""
    return f"{row['kind']}{level}"


def far(suspect: Row) -> float:
    return max(suspect[space] for space in SPACES)


def right_one(row: Row) -> Row | None:
    """The candidate that is right, at its own name, if it was offered."""
    own = [one for one in row["suspects"] if one["candidate"] in row["right"]]
    return min(own, key=far) if own else None


def next_one(row: Row) -> Row | None:
    """The nearest wrong candidate that converges and does not contain the right one."""
    wrong = [
        one
        for one in row["suspects"]
        if one["candidate"] not in row["right"]
        and not {*candidate(one["candidate"]).contains} & {*row["right"]}
        and "diverges" not in one["because"]
    ]
    return min(wrong, key=far) if wrong else None


def disguises(rows: list[Row]) -> Lines:
    header = ["disguise", "models", *OUTCOMES, "right candidate: median, largest", "next: smallest"]
    lines = []
    some = sorted(of(rows, *KNOWN), key=lambda row: (KNOWN.index(row["kind"]), row["level"]))
    for group in dict.fromkeys(map(group_of, some)):
        own = [row for row in some if group_of(row) == group]
        found = [outcome_of(row) for row in own]
        gaps = [far(one) for row in own if (one := right_one(row))]
        after = [far(one) for row in own if (one := next_one(row))]
        cells = [str(found.count(name)) for name in OUTCOMES]
        near = f"{median(gaps):.2g}, {max(gaps):.2g}" if gaps else "-"
        lines.append([group, str(len(own)), *cells, near, f"{min(after):.2g}" if after else "-"])
    return header, lines


def noise(rows: list[Row]) -> Lines:
    header = ["tasks", "solver", "noise", "seeds", *OUTCOMES, "to the oracle", "right candidate"]
    lines = []
    some = of(rows, NOISE)
    for cell in dict.fromkeys((row["tasks"], row["about"], row["level"]) for row in some):
        own = [row for row in some if (row["tasks"], row["about"], row["level"]) == cell]
        found = [outcome_of(row) for row in own]
        gaps = ", ".join(f"{row['distance to oracle']:.2g}" for row in own)
        near = ", ".join(f"{far(one):.2g}" for row in own if (one := right_one(row)))
        counts = [str(found.count(name)) for name in OUTCOMES]
        lines.append([cell[0], cell[1], f"{cell[2]:g}", str(len(own)), *counts, gaps, near])
    return header, lines


def single(rows: list[Row]) -> Lines:
    header = ["tasks", "solver", "kernel", "verdict", "state, float32", "innovation, float32"]
    header += ["state, float64", "innovation, float64"]
    whole = {(r["tasks"], r["about"], r["kernel"]): r for r in of(rows, PLAIN) if r["seed"] == 0}
    lines = []
    for row in of(rows, SINGLE):
        other = whole.get((row["tasks"], row["about"], row["kernel"]))
        both = [right_one(one) if one else None for one in (row, other)]
        cells = [f"{one[space]:.2g}" if one else "-" for one in both for space in SPACES]
        lines.append([row["tasks"], row["about"], row["kernel"], words_of(row), *cells])
    return header, lines


def words_of(row: Row) -> str:
    said = said_of(row)
    return NONE if said.status == NONE else f"{said.status}: {', '.join(said.names)}"


def strangers(rows: list[Row]) -> Lines:
    header = ["tasks", "model", "the stream holds", "verdict", "as if use were not measured"]
    header += ["nearest", *SPACES, "because"]
    lines = []
    for row in of(rows, STRANGER, POWERS):
        best, unused = row["suspects"][0], said_of(row, "streams")
        before = unused.status + (f": {', '.join(unused.names)}" if unused.names else "")
        cells = [best["candidate"], *(f"{best[space]:.2g}" for space in SPACES), best["because"]]
        lines.append([row["tasks"], row["about"], row["label"], words_of(row), before, *cells])
    return header, lines


def randoms(rows: list[Row]) -> Lines:
    header = ["tasks", "models", "named", "close to", "none"]
    lines = []
    for kind in ("untrained encoder", "random functions"):
        for tasks in dict.fromkeys(row["tasks"] for row in of(rows, RANDOM)):
            own = [r for r in of(rows, RANDOM) if kind in r["about"] and r["tasks"] == tasks]
            said = [said_of(row).status for row in own]
            named = Share.of(said.count(IDENTIFIED) + said.count(TIED), len(said))
            lines.append([f"{tasks}, {kind}", str(len(own)), str(named)])
            lines[-1] += shares(said, (NEAR, NONE))
    every = [said_of(row).status for row in of(rows, RANDOM, STRANGER, POWERS)]
    if lines:
        named = Share.of(every.count(IDENTIFIED) + every.count(TIED), len(every))
        lines.append(["all, and strangers", str(len(every)), str(named)])
        lines[-1] += shares(every, (NEAR, NONE))
    return header, lines


def encoders(rows: list[Row]) -> Lines:
    header = ["encoder", "seed", "verdict", "candidate", *SPACES]
    header += [f"{space}, ratio" for space in SPACES] + ["because"]
    lines = []
    for row in of(rows, ENCODER):
        for one in row["suspects"]:
            least, cells = one["untrained"], [f"{one[space]:.2g}" for space in SPACES]
            cells += [f"{one[s] / least[s]:.2g}" if least[s] else "-" for s in SPACES]
            first = [row["about"], str(row["seed"]), words_of(row)]
            lines.append([*first, one["candidate"], *cells, one["because"]])
    return header, lines


def missed(rows: list[Row]) -> Lines:
    header = [
        "disguise",
        "tasks",
        "solver",
        "kernel",
        "seed",
        "verdict",
        "right candidate, because",
    ]
    lines = []
    for row in of(rows, *KNOWN):
        if outcome_of(row) != "right":
            own = right_one(row)
            why = f"{far(own):.2g}: {own['because'] or 'remains'}" if own else "not offered"
            cells = [row["tasks"], row["about"], row["kernel"], str(row["seed"])]
            lines.append([group_of(row), *cells, words_of(row), why])
    return header, lines


def seconds(rows: list[Row]) -> Lines:
    """Medians by family; the first model of each includes the time to compile."""
    header, lines = ["tasks", "models", "median", "largest", "first"], []
    for tasks in dict.fromkeys(row["tasks"] for row in rows):
        own = [row["seconds"] for row in rows if row["tasks"] == tasks]
        cells = (f"{value:.0f}" for value in (median(own), max(own), own[0]))
        lines.append([tasks, str(len(own)), *cells])
    return header, lines
