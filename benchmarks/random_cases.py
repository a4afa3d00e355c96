"""`python -m benchmarks.random_cases`: count wrong numbers that no status reports.

Random tasks in float32 and float64 go through every public function that returns numbers. Every
result is compared with the exact one, in as many digits as the task needs. About half of the tasks
are ordinary. The others have some of: points or outputs of extreme scale, points far from the
origin, queries far from the supports, equal or masked supports, extreme ridges and bandwidths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

import icl_krr as ik
from benchmarks import records
from benchmarks.random_subjects import SUBJECTS, Subject
from benchmarks.random_truths import KERNELS, Case, truths
from icl_krr.files import Lines, to_markdown

SUPPORTS, FEATURES, QUERIES = 12, 3, 4
DTYPES = ("float32", "float64")
TOLERANCE = 1e-2
"""A value is wrong if its error exceeds this. It is right if its error is below a tenth of this."""

SHOWN = 200
"""Faults that the record lists one by one."""


def draw(rng: np.random.Generator, extreme: bool, dtype: str) -> Case:
    def some(low: float, high: float) -> float:
        """10^u for a uniform u, or 1 in an ordinary task and in most extreme ones."""
        return 10 ** rng.uniform(low, high) if extreme and rng.random() < 0.3 else 1.0

    x = rng.normal(size=(SUPPORTS, FEATURES)) * some(-6, 3)
    x_query = rng.normal(size=(QUERIES, FEATURES)) * np.std(x) * some(0, 3)
    if extreme and rng.random() < 0.3:
        x[SUPPORTS // 2 :] = x[: SUPPORTS // 2]
    shift = some(0, 5)
    if shift != 1.0:
        direction = rng.normal(size=FEATURES)
        x, x_query = x + shift * direction, x_query + shift * direction
    keep = np.ones(SUPPORTS, bool)
    if extreme and rng.random() < 0.3:
        keep = rng.random(SUPPORTS) < rng.choice([0.0, 0.5, 0.9])
    task = ik.Task(
        x=jnp.asarray(x, dtype),
        y=jnp.asarray(rng.normal(size=SUPPORTS) * some(-25, 25), dtype),
        x_query=jnp.asarray(x_query, dtype),
        mask=jnp.asarray(keep),
    )
    ridge = 10 ** rng.uniform(-4, 1) * some(-4, 4)
    bandwidth = 10 ** rng.uniform(-0.5, 0.5) * some(-2, 2)
    number = np.dtype(dtype).type
    return Case(task, number(ridge), number(bandwidth))


OUTCOMES = (
    "right, ok",
    "right, reported",
    "between, ok",
    "between, reported",
    "wrong, ok",
    "wrong, reported",
    "not finite, ok",
    "not finite, reported",
)

FAULTS = ("right, reported", "wrong, ok", "not finite, ok")


def outcome(found: float, ok: bool) -> str:
    if not np.isfinite(found):
        kind = "not finite"
    elif found > TOLERANCE:
        kind = "wrong"
    else:
        kind = "right" if found < TOLERANCE / 10 else "between"
    return f"{kind}, {'ok' if ok else 'reported'}"


def scaled_error(value: np.ndarray, truth: Any, floor: float) -> float:
    """The largest error over its scale; infinite if a value is not finite or nothing is known.

    The scale is given with the truth, or the largest magnitude. Numbers of the size of the smallest
    normal one are as good as 0.
    """
    if truth is None or not np.all(np.isfinite(value)):
        return np.inf
    value = np.asarray(value, float)
    truth = truth if isinstance(truth, tuple) else (truth, np.max(np.abs(truth), initial=0))
    true, scale, least = truth if len(truth) == 3 else (*truth, truth[0])
    with np.errstate(all="ignore"):
        errors = np.maximum(value - true, least - value) / np.maximum(scale, floor)
    return float(np.max(np.where(np.isnan(errors), np.inf, errors), initial=0))


class Found(NamedTuple):
    subject: str
    dtype: str
    kernel: str
    seed: int
    number: int
    error: float
    ok: bool


@cache
def batched(run: Any, make: Any) -> Any:
    return jax.jit(jax.vmap(lambda task, ridge, bandwidth: run(make(bandwidth), task, ridge)))


def results(subject: Subject, make: Any, drawn: list[Case], dtype: str) -> Iterator[Any]:
    """Yield values and `ok` for every case; a refusal, as of infinite bounds, is a report."""
    if subject.batched:
        stack = lambda *parts: np.stack([np.asarray(part) for part in parts])  # noqa: E731
        tasks, ridges, bandwidths = jax.tree.map(
            stack, *((case.task, case.ridge, case.bandwidth) for case in drawn)
        )
        with jax.enable_x64(True):  # `icl_krr.check` compares in float64 here, as outside of jit
            found = jax.device_get(batched(subject.run, make)(tasks, ridges, bandwidths))
        yield from (jax.tree.map(lambda part, i=i: part[i], found) for i in range(len(drawn)))
        return
    with jax.enable_x64(dtype == "float64"):
        for case in drawn:
            try:
                bandwidth, ridge = jnp.asarray(case.bandwidth), jnp.asarray(case.ridge)
                yield jax.device_get(subject.run(make(bandwidth), case.task, ridge))
            except ValueError:
                yield (np.full(QUERIES, np.nan),) * len(subject.answers), False


def run(
    seed: int, cases: int, subjects: Iterable[str] = tuple(SUBJECTS), dtypes: Iterable[str] = DTYPES
) -> Iterator[Found]:
    """Yield the error and the status of the subjects on `cases` tasks, per kernel and dtype."""
    for dtype in dtypes:
        for kernel, (make, _) in KERNELS.items():
            rng = np.random.default_rng([seed, *kernel.encode()])
            with jax.enable_x64(dtype == "float64"):
                drawn = [draw(rng, bool(i % 2), dtype) for i in range(cases)]
            exact = [truths(kernel, case) for case in track(drawn, f"truths, {kernel}")]
            for name in track([*subjects], f"results, {kernel}, {dtype}"):
                subject = SUBJECTS[name]
                if kernel not in subject.kernels:
                    continue
                every = results(subject, make, drawn, dtype)
                for i, (values, ok) in enumerate(every):
                    error = worst(subject, jax.tree.leaves(values), exact[i], dtype)
                    yield Found(name, dtype, kernel, seed, i, error, bool(ok))


def worst(subject: Subject, values: list[Any], exact: dict[str, Any], dtype: str) -> float:
    floor = 100 * float(np.finfo(dtype).tiny)
    pairs = zip(values, subject.answers, strict=True)
    return max(scaled_error(np.asarray(v), exact.get(answer), floor) for v, answer in pairs)


def table(found: list[Found]) -> Lines:
    counts = Counter((f"{one.subject}, {one.dtype}", outcome(one.error, one.ok)) for one in found)
    lines = []
    for name in (*dict.fromkeys(subject for subject, _ in counts), "all"):
        line = [
            sum(n for (own, what), n in counts.items() if what == o and name in (own, "all"))
            for o in OUTCOMES
        ]
        lines.append([name, *map(str, (sum(line), *line))])
    return ["result", "cases", *OUTCOMES], lines


def main() -> None:
    parser = records.options(__doc__, seed="seed of the tasks")
    parser.add_argument("--rounds", type=int, default=11, help="rounds; each adds to the record")
    parser.add_argument("--cases", type=int, default=40, help="tasks of a kernel in a round")
    asked = parser.parse_args()
    found: list[Found] = []
    for number in range(1 if asked.quick else asked.rounds):
        found += run(asked.seed + number, 4 if asked.quick else asked.cases)
        faults = [one for one in found if outcome(one.error, one.ok) in FAULTS]
        faults.sort(key=lambda one: one.ok, reverse=True)
        print(to_markdown(table(found)))
        for one in faults[:SHOWN]:
            print(f"{outcome(one.error, one.ok)}: {one}")
        if not asked.quick:
            record(found, faults, asked.seed, number + 1, asked.cases)


def record(found: list[Found], faults: list[Found], seed: int, rounds: int, cases: int) -> None:
    command = f"random_cases --seed {seed} --rounds {rounds} --cases {cases}"
    facts = {"seed": seed, "rounds": rounds, "cases": cases, "dtypes": DTYPES}
    header, lines = table(found)
    content = {
        "meta": records.meta(command, "mpmath", **facts),
        "rows": [dict(zip(header, line, strict=True)) for line in lines],
        "number of faults": len(faults),
        "faults": [one._asdict() for one in faults[:SHOWN]],
    }
    records.save("random_cases", content, to_markdown((header, lines)))


if __name__ == "__main__":
    main()
