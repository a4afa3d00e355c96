"""`python -m benchmarks.what_networks_run`: write the page from the records of other benchmarks."""

import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from benchmarks import profiles, trained
from benchmarks.profiles import FACTOR, HOWS, KNOWN, OWN, PROBE, listed, read_by, share
from benchmarks.records import RESULTS, Row, options, read
from benchmarks.streams import DISTRACTOR, RANDOM, of
from icl_krr.experiments import Lines, format_steps, replace, to_markdown
from icl_krr.experiments.solverbench import Share

PAGE = RESULTS / "what-networks-run.md"
TEXT = Path(__file__).with_name("what_networks_run.txt")
"""The sentences of the page, with a place for every number."""
CLAIMS = ("C48", "C49")
SOLVERS = ("richardson", "preconditioned_chebyshev", "conjugate_gradient")
"""Solvers whose equivalent steps the page shows; the table of scaling has all."""


def hours(rows: Iterable[Row]) -> str:
    return f"{sum(row['seconds'] for row in rows) / 3600:.1f}"


def left(rows: list[Row], count: int) -> dict[str, str]:
    """How many models were not read, and the hours that they would take."""
    hours = count * sum(row["seconds"] for row in rows) / len(rows) / 3600
    return {"left": str(count), "hours_left": f"{hours:.1f}"}


def control_table(rows: list[Row]) -> Lines:
    """A line for each way to read a layer: the names of known models, and those of distractors."""
    header = ["layers are read from", "right", "wrong, the right one as near", "certain and wrong"]
    header += ["a null is as near"]
    header += ["distractors named for certain", "distractors: a null is as near"]
    _, lines = profiles.summary(rows)
    chosen = [line for line in lines if ", ".join(line[1:3]) == HOWS[0]]
    return header, [[line[0], *line[4:6], *line[7:9], *line[11:]] for line in chosen]


def scaling_table(models: list[Row]) -> Lines:
    header = ["model", "excess over exact KRR", "updates"]
    header += [f"steps of {name.replace('_', ' ')}" for name in SOLVERS]
    lines = []
    for row in models:
        cells = [f"{row['excess']:.3g} ± {row['sampling']:.1g}"]
        cells += [f"{row['updates']}{'' if row['converged'] else ', still falling'}"]
        cells += [format_steps(row["equivalents"][name]) for name in SOLVERS]
        lines.append([row["model"], *cells])
    return header, lines


def ablation_facts(record: Row) -> dict[str, str]:
    first = record["confusion"][0]
    every = [one for row in record["trained"] for one in row["nearest"]]
    readings = Counter(one["reading"] for one in every)
    rich = sum("richardson" in (one["name"], *one["tied"]) for one in every)
    return {
        "count": str(len(every)),
        "right": str(Share.of(*first["right"])),
        "solvers": str(Share.of(*first["distractors"]["other solver"])),
        "nothing": str(Share.of(*first["distractors"]["no solver"])),
        "candidate": str(readings["candidate"]),
        "other": str(readings["other solver"]),
        "none": str(readings["no solver"]),
        "undecided": str(Share.of(readings["not distinguishable"], len(every))),
        "richardson": f"{rich} of {len(every)}",
    }


def control_facts(rows: list[Row]) -> dict[str, str]:
    """What the paragraphs on the control say."""
    constructed, strange = listed(of(rows, *KNOWN)), of(rows, DISTRACTOR, RANDOM)
    by_probe = [said for _, said in read_by(strange, PROBE)]
    plain, sound, noisy = (listed(of(rows, *kinds)) for kinds in (KNOWN[:1], KNOWN[:2], KNOWN[2:]))
    distances = [profiles.least(said, row["right"]) for row, said in read_by(plain, OWN)]
    called = Counter(said["nearest"] for said in by_probe).most_common()
    return {
        "streams": profiles.beside(sound)[1][-1][2],
        "noisy": profiles.beside(noisy)[1][-1][2],
        "far": f"{median(distances):.0e}",
        "farthest": f"{max(distances):.2g}",
        "known": str(len(constructed)),
        "plain": str(len(plain)),
        "distractors": str(len(strange)),
        "table": to_markdown(control_table(rows)),
        "beside": to_markdown(profiles.beside(rows)),
        "own": profiles.right_from(plain, OWN),
        "factor": profiles.right_from(plain, FACTOR),
        "probe": profiles.right_from(plain, PROBE),
        "null_probe": share(profiles.with_null(said) for _, said in read_by(constructed, PROBE)),
        "null_strange": share(map(profiles.with_null, by_probe)),
        "called": ", ".join(f"{name} {count}" for name, count in called),
    }


def trained_facts(rows: dict[str, Row]) -> dict[str, str]:
    """What the paragraphs on trained models say: counts over all of them, or over decoders."""
    every, decoders = [*rows.values()], trained.grouped(rows)[trained.DECODERS]
    first, last = HOWS[0], HOWS[2]

    def named(how: str, whose: str = "model") -> str:
        *_, names = trained.PRECONDITIONED.values()
        return share(row[whose][how]["nearest"] in names for row in decoders)

    def richardson(reading: str) -> str:
        return share(trained.READINGS[reading](row) == "richardson" for row in decoders)

    return {
        "decoders": str(len(decoders)),
        "others": str(len(every) - len(decoders)),
        "names": to_markdown(trained.names_table(rows)),
        "statements": to_markdown(trained.agreement_table(rows)),
        "distances": to_markdown(trained.distances_table(rows)),
        "model": named(first),
        "model_monotone": named(last),
        "random": named(first, "untrained"),
        "random_monotone": named(last, "untrained"),
        "null": share(trained.null_is_nearer(row, first) for row in decoders),
        "null_last": share(trained.null_is_nearer(row, HOWS[3]) for row in decoders),
        "hat": share(trained.nearer_than_controls(row, "probe", "hat") for row in every),
        "as_near": share(profiles.with_null(row["model"][first]) for row in every),
        "alone": share(not row["model"][first]["tied"] for row in every),
        "state": richardson("state"),
        "innovation": richardson("innovation"),
        "agree": share(map(trained.agree, every)),
        "streams": share(row["streams"]["status"] in trained.NAMED for row in every),
        "probe": share(row["probe"]["status"] in trained.NAMED for row in every),
    }


def scaling_facts(models: list[Row]) -> dict[str, str]:
    def said(row: Row, name: str) -> str:
        return format_steps(row["equivalents"][name])

    deep = [row for row in models if row["seed"] == 0 and row["width"] == 32]
    five = next(row for row in deep if row["num_features"] == 5)
    base = next(row for row in deep if row["depth"] == 4)
    deep = [row for row in deep if all(row[name] == base[name] for name in SAME)]
    return {
        "table": to_markdown(scaling_table(models)),
        **{f"depth_{row['depth']}_{name}": said(row, name) for row in deep for name in SOLVERS},
        "five_richardson": said(five, "richardson"),
        "falling": share(not row["converged"] for row in models),
    }


def slopes(rows: list[Row]) -> dict[str, str]:
    """Slopes of log excess over all decoders, with their intervals."""
    every = {row["axis"]: row["fit"] for row in rows if row["models"] == "all"}
    return {
        f"slope_{axis.replace(' ', '_')}": "{slope:.1f} ({low:.1f} to {high:.1f})".format(**fit)
        for axis, fit in every.items()
        if fit
    }


SAME = ("num_features", "num_supports", "lengthscale", "style")


def page() -> str:
    profile, models, decoders = (read(n) for n in ("error-profiles", "trained", "decoders"))
    subjects, ablations, scaling = (read(n) for n in ("subjects", "ablations", "scaling"))
    rows = models["models"]
    others = [row for name, row in rows.items() if trained.group_of(name) != trained.DECODERS]
    unread = len(subjects["rows"]) - len(others)
    claims = {claim["id"]: claim for claim in read("claims")["claims"]}
    parts = {
        "control": control_facts(profile["rows"])
        | left(profile["rows"], profile["meta"]["not run"]),
        "trained": trained_facts(rows) | left(others, unread),
        "ablations": ablation_facts(ablations),
        "scaling": scaling_facts(scaling["models"]) | slopes(scaling["slopes"]),
        "count": {"decoders": str(len(decoders["models"])), "subjects": str(len(subjects["rows"]))},
        "hours": {
            "profiles": hours(profile["rows"]),
            "decoders": hours(decoders["models"].values()),
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
