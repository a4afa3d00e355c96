"""`python -m benchmarks.what_networks_run`: write the page from the records of other benchmarks."""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks import converged, probe_similarity as similar, profiles, scaling, trained
from benchmarks.profiles import FACTOR, HOWS, KNOWN, OWN, PROBE, listed, read_by, share
from benchmarks.records import RESULTS, Row, grouped, options, read
from benchmarks.streams import DISTRACTOR, NORMED, RANDOM, TRAINED, of, outcome_of
from icl_krr.experiments import Lines, replace, to_markdown
from icl_krr.experiments.identify import NULLS
from icl_krr.experiments.solverbench import Share

PAGE = RESULTS / "what-networks-run.md"
TEXT = Path(__file__).with_name("what_networks_run.txt")
"""The sentences of the page, with a place for every number."""
CLAIMS = ("C48", "C49", "C50")
SOLVERS = ("richardson", "preconditioned_chebyshev", "conjugate_gradient")
"""Solvers whose equivalent steps the page shows; the table of scaling has all."""


def ratio(flags: Iterable[bool]) -> str:
    """How many hold, without an interval, of cases that are not independent."""
    values = [*flags]
    return f"{sum(values)}/{len(values)}"


def hours(rows: Iterable[Row]) -> str:
    return f"{sum(row['seconds'] for row in rows) / 3600:.1f}"


def control_table(rows: list[Row]) -> Lines:
    """A line for each way to read a layer: the names of known models, and those of distractors."""
    header = ["layers are read from", "right", "wrong, the right one as near", "certain and wrong"]
    header += ["a null is as near"]
    header += ["distractors named for certain", "distractors: a null is as near"]
    _, lines = profiles.summary(rows)
    chosen = [line for line in lines if ", ".join(line[1:3]) == HOWS[0]]
    return header, [[line[0], *line[4:6], *line[7:9], *line[11:]] for line in chosen]


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
    hidden = of(profiles.through_streams().values(), NORMED, TRAINED)
    return {
        "streams": profiles.beside(sound)[1][-1][2],
        "noisy": profiles.beside(noisy)[1][-1][2],
        "hidden": ratio(outcome_of(row) == "right" for row in hidden),
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
    firsts, lasts = ([rows[name] for name in names] for names in zip(*ends(stages), strict=True))
    return {
        "table": to_markdown(converged.table(models)),
        "begin": said(row["excess"] for row in firsts),
        "end": said(row["excess"] for row in lasts),
        "read": ", ".join(map(str, converged.KEPT)),
    }


def ends(names: Iterable[str]) -> list[list[str]]:
    """The first and the last stage of each model."""
    stages = grouped(names, lambda name: name.partition(",")[0])
    return [[each[0], each[-1]] for each in stages.values()]


def at_ends(rows: dict[str, Row]) -> dict[str, Row]:
    """The rows of the first and the last stage of each model."""
    return {name: rows[name] for pair in ends(rows) for name in pair}


def trained_facts(rows: dict[str, Row]) -> dict[str, str]:
    firsts, lasts = zip(*ends(rows), strict=True)
    names = Counter(row["model"][HOWS[0]]["nearest"] for row in rows.values()).most_common()
    ratios = [
        trained.nearest(row[part], space)[1] / trained.nearest_control(row, part, space)
        for row in rows.values()
        for part, space in trained.SPACES.values()
    ]

    def nearer(how: str) -> str:
        said = [row["model"][how] for row in rows.values()]
        return ratio(profiles.least(one, NULLS) < trained.nearest_far(one) for one in said)

    facts: dict[str, Callable[[Row], float]] = {
        "error": lambda row: trained.nearest_far(row["model"][HOWS[0]]),
        "gap": lambda row: trained.nearest_far(row["model"][HOWS[3]]),
        "filter": lambda row: row["model"]["filter"],
    }
    return {
        "count": str(len(rows)),
        "models": to_markdown(trained.models_table(at_ends(rows))),
        "streams": ratio(row["streams"]["status"] in trained.NAMED for row in rows.values()),
        "profile": ", ".join(f"{name} at {count}" for name, count in names),
        "nearer": ", ".join(f"{nearer(how)} ({how})" for how in HOWS),
        "ratios": f"{min(ratios):.2f} to {max(ratios):.2f}",
        **{f"{key}_begin": said(of(rows[name]) for name in firsts) for key, of in facts.items()},
        **{f"{key}_end": said(of(rows[name]) for name in lasts) for key, of in facts.items()},
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
        "confusion": to_markdown(similar.confusion(rows, "query")),
        "inputs": to_markdown(similar.inputs_table(rows, ["query"])),
        "trained": to_markdown(similar.trained_table(at_ends(models), ["query"])),
        "query": right("query"),
        "support": right("support"),
    }


def page() -> str:
    profile, models, cosines = (read(n) for n in ("error-profiles", "trained", "probe-similarity"))
    ablations, steps, training = (read(n) for n in ("ablations", "scaling", "converged"))
    rows = models["models"]
    stages = {f"{row['model']}, {row['updates']}": row for row in steps["models"]}
    seconds = sum(row["cpu_seconds"] for each in training["models"].values() for row in each)
    claims = {claim["id"]: claim for claim in read("claims")["claims"]}
    parts = {
        "control": control_facts(profile["rows"]),
        "converged": converged_facts(training["models"], rows),
        "trained": trained_facts(rows),
        "similar": similar_facts(cosines),
        "ablations": ablation_facts(ablations),
        "scaling": {"table": to_markdown(scaling.models_table(at_ends(stages).values(), SOLVERS))},
        "hours": {
            "profiles": hours(profile["rows"]),
            "converged": f"{seconds / 3600:.1f}",
            "similar": hours([*cosines["rows"], *cosines["trained"].values()]),
            "trained": hours(rows.values()),
            "ablations": f"{ablations['meta']['cpu_seconds'] / 3600:.1f}",
            "claims": f"{sum(claims[name]['cpu_seconds'] for name in CLAIMS) / 3600:.1f}",
        },
        "claims": {
            name.lower(): "\n> ".join(textwrap.wrap(claims[name]["truth"], 98)) for name in CLAIMS
        },
    }
    words = {f"{part}_{key}": text for part, facts in parts.items() for key, text in facts.items()}
    return TEXT.read_text().format(**words)


if __name__ == "__main__":
    options(__doc__, quick="")
    replace(PAGE, page().encode())
