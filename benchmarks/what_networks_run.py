"""`python -m benchmarks.what_networks_run`: write the page from the records of other benchmarks."""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from benchmarks import converged, probe_similarity as similar, profiles, scaling, trained
from benchmarks.profiles import FACTOR, HOWS, KNOWN, OWN, PROBE, listed, read_by, share
from benchmarks.records import RESULTS, Row, grouped, options, read
from benchmarks.streams import DISTRACTOR, NORMED, RANDOM, SUPERPOSED, TRAINED, of, outcome_of
from icl_krr.experiments import Lines, replace, to_markdown
from icl_krr.experiments.identify import NULLS
from icl_krr.experiments.solverbench import Share

PAGE = RESULTS / "what-networks-run.md"
TEXT = Path(__file__).with_name("what_networks_run.txt")
"""The sentences of the page, with a place for every number."""
SOLVERS = ("richardson", "preconditioned_chebyshev", "conjugate_gradient")
"""Solvers whose equivalent steps the page shows; the table of scaling has all."""


def ratio(flags: Iterable[bool]) -> str:
    """How many hold, without an interval, of cases that are not independent."""
    values = [*flags]
    return f"{sum(values)}/{len(values)}"


def hours(rows: Iterable[Row], key: str = "cpu_seconds") -> str:
    return f"{sum(row[key] for row in rows) / 3600:.1f}"


def control_table(rows: list[Row]) -> Lines:
    """A line for each way to read a layer: the names of known models, and those of distractors."""
    header, lines = profiles.summary(rows)
    chosen = [line for line in lines if ", ".join(line[1:3]) == HOWS[0]]
    shown, *cells = ([*line[:1], *line[4:9], *line[11:]] for line in (header, *chosen))
    return shown, cells


def ablation_facts(record: Row) -> dict[str, str]:
    first = record["confusion"][0]
    every = [one for row in record["trained"] for one in row["nearest"]]
    readings = Counter(one["reading"] for one in every)
    return {
        "count": str(len(every)),
        "right": str(Share.of(*first["right"])),
        "solvers": str(Share.of(*first["distractors"]["other solver"])),
        "nothing": str(Share.of(*first["distractors"]["no solver"])),
        "undecided": ratio(one["reading"] == "not distinguishable" for one in every),
        "none": str(readings["no solver"]),
        "candidates": str(readings["candidate"]),
    }


def control_facts(rows: list[Row]) -> dict[str, str]:
    """What the paragraphs on the control say."""
    constructed, strange = listed(of(rows, *KNOWN)), of(rows, DISTRACTOR, RANDOM)
    plain, sound, noisy = (listed(of(rows, *kinds)) for kinds in (KNOWN[:1], KNOWN[:2], KNOWN[2:]))
    hidden = of(profiles.through_streams().values(), NORMED, TRAINED, SUPERPOSED)
    return {
        "streams": profiles.beside(sound)[1][-1][2],
        "noisy": profiles.beside(noisy)[1][-1][2],
        "hidden": ratio(outcome_of(row) in ("right", "close") for row in hidden),
        "known": str(len(constructed)),
        "plain": str(len(plain)),
        "distractors": str(len(strange)),
        "table": to_markdown(control_table(rows)),
        "beside": to_markdown(profiles.beside(rows)),
        "own": profiles.right_from(plain, OWN),
        "factor": profiles.right_from(plain, FACTOR),
        "probe": profiles.right_from(constructed, PROBE),
        "null_probe": share(profiles.with_null(said) for _, said in read_by(constructed, PROBE)),
    }


def said(numbers: Iterable[float]) -> str:
    """Numbers as text, such as "1, 2 and 3"."""
    *some, last = (f"{number:.2g}" for number in numbers)
    return f"{', '.join(some)} and {last}"


def converged_facts(models: dict[str, list[Row]], stages: Iterable[str]) -> dict[str, str]:
    """What the paragraphs on training say of the stages that are read."""
    rows = {f"{name}, {row['step']} updates": row for name in models for row in models[name]}
    firsts, lasts = rows_at_ends(rows, stages)
    return {
        "table": to_markdown(converged.table(models)),
        "begin": said(row["excess"] for row in firsts),
        "end": said(row["excess"] for row in lasts),
    }


def ends(names: Iterable[str]) -> list[list[str]]:
    """The first and the last stage of each model."""
    stages = grouped(names, lambda name: name.partition(",")[0])
    return [[each[0], each[-1]] for each in stages.values()]


def rows_at_ends(rows: dict[str, Row], names: Iterable[str]) -> Iterator[list[Row]]:
    """The rows of the first stages of all models, then those of the last ones."""
    return ([rows[name] for name in one] for one in zip(*ends(names), strict=True))


def at_ends(rows: dict[str, Row]) -> dict[str, Row]:
    """The rows of the first and the last stage of each model."""
    return {name: rows[name] for pair in ends(rows) for name in pair}


def verdicts(row: Row, cosines: Row) -> dict[str, tuple[str, bool]]:
    """The nearest solver by each reading of a stage, and whether it is nearer than all controls."""
    found = {}
    for how in HOWS:
        one = row["model"][how]
        found[how] = one["nearest"], trained.nearest_far(one) < profiles.least(one, NULLS)
    for reading, (part, space) in trained.SPACES.items():
        solver, size = trained.nearest(row[part], space)
        found[reading] = solver, size < trained.nearest_control(row, part, space)
    for role in similar.ROLES:
        model, *controls = (cosines[key][role] for key in similar.NULLS.values())
        size, *others = (one["similarity"][one["nearest"]] for one in (model, *controls))
        found[f"cosines, token of the {role}"] = model["nearest"], size > max(others)
    return found


def names_table(rows: dict[str, Row], cosines: dict[str, Row]) -> Lines:
    """At how many stages each reading has each name."""
    every, lines = {name: verdicts(row, cosines[name]) for name, row in rows.items()}, []
    for reading in next(iter(every.values())):
        cells = [reading]
        for family in ("-gp-", "-linear"):
            names = Counter(one[reading][0] for name, one in every.items() if family in name)
            cells.append(", ".join(f"{name} {count}" for name, count in names.most_common()))
        lines.append([*cells, ratio(one[reading][1] for one in every.values())])
    return ["reading", "Gaussian processes", "linear functions", "nearer than all controls"], lines


def trained_facts(rows: dict[str, Row], cosines: dict[str, Row]) -> dict[str, str]:
    firsts, lasts = rows_at_ends(rows, rows)
    facts: dict[str, Callable[[Row], float]] = {
        "error": lambda row: trained.nearest_far(row["model"][HOWS[0]]),
        "later": lambda row: trained.nearest_far(row["model"][HOWS[2]]),
        "filter": lambda row: row["model"]["filter"],
    }
    return {
        "count": str(len(rows)),
        "models": to_markdown(trained.models_table(at_ends(rows))),
        "names": to_markdown(names_table(rows, cosines)),
        "streams": ratio(row["streams"]["status"] in trained.NAMED for row in rows.values()),
        **{f"{key}_begin": said(map(fact, firsts)) for key, fact in facts.items()},
        **{f"{key}_end": said(map(fact, lasts)) for key, fact in facts.items()},
    }


def similar_facts(record: Row) -> dict[str, str]:
    """What the paragraphs on the second protocol say."""
    rows, models = record["rows"], record["trained"]
    known = similar.listed(of(rows, *KNOWN))
    mixed = {last: models[last] for _, last in ends(models) if len(models[last]["errors"]) > 1}

    def right(role: str) -> str:
        return share(row["read"][role]["nearest"] in row["right"] for row in known)

    return {
        "table": to_markdown(similar.known_table(rows)),
        "errors": to_markdown(similar.errors_table(mixed)),
        "inputs": to_markdown(similar.inputs_table(rows, ["query"])),
        **{role: right(role) for role in similar.ROLES},
    }


def page() -> str:
    profile, models, cosines = (read(n) for n in ("error-profiles", "trained", "probe-similarity"))
    ablations, steps, training = (read(n) for n in ("ablations", "scaling", "converged"))
    rows = models["models"]
    stages = {f"{row['model']}, {row['updates']}": row for row in steps["models"]}
    solved = [family["curves"] for family in steps["families"]]
    claims = {claim["id"]: claim for claim in read("claims")["claims"]}
    parts = {
        "control": control_facts(profile["rows"]),
        "converged": converged_facts(training["models"], rows),
        "trained": trained_facts(rows, cosines["trained"]),
        "similar": similar_facts(cosines),
        "ablations": ablation_facts(ablations),
        "scaling": {
            "table": to_markdown(scaling.models_table(at_ends(stages).values(), SOLVERS)),
            **{name: said(curves[name]["excess"][8] for curves in solved) for name in SOLVERS},
        },
        "hours": {
            "profiles": hours(profile["rows"], "seconds"),
            "converged": hours(row for each in training["models"].values() for row in each),
            "similar": hours([*cosines["rows"], *cosines["trained"].values()], "seconds"),
            "trained": hours(rows.values(), "seconds"),
            "ablations": hours([ablations["meta"]]),
            "claims": hours(claims[name] for name in ("C48", "C49", "C50")),
        },
        "claims": {"c49": "\n> ".join(textwrap.wrap(claims["C49"]["truth"], 98))},
    }
    words = {f"{part}_{key}": text for part, facts in parts.items() for key, text in facts.items()}
    return TEXT.read_text().format(**words)


if __name__ == "__main__":
    options(__doc__, quick="")
    replace(PAGE, page().encode())
