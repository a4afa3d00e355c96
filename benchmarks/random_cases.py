"""`python -m benchmarks.random_cases`: count wrong predictions that no status reports.

Random tasks in float32 go through solvers and constructions. Every result is compared with kernel
ridge regression in as many digits as the task needs. About half of the tasks are ordinary. The
others have some of: points or outputs of extreme scale, points far from the origin, queries far
from the supports, equal or masked supports, extreme ridges and bandwidths.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
from rich.progress import track

import icl_krr as ik
from icl_krr.cli.output import to_json
from icl_krr.files import Lines, replace, to_markdown

HERE = Path(__file__).parent
SUPPORTS, FEATURES, QUERIES, STEPS = 12, 3, 4, 24
TOLERANCE = 1e-2
"""A value is wrong if its error exceeds this. It is right if its error is below a tenth of this."""

LARGEST_SPREAD = 300
"""Decimal digits that a kernel matrix may span: float32 spans 38, beyond this nothing is right."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One task with its ridge and bandwidth, in float32."""

    task: ik.Task
    ridge: np.float32
    bandwidth: np.float32


def draw(rng: np.random.Generator, extreme: bool) -> Case:
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
        x=jnp.asarray(x, jnp.float32),
        y=jnp.asarray(rng.normal(size=SUPPORTS) * some(-25, 25), jnp.float32),
        x_query=jnp.asarray(x_query, jnp.float32),
        mask=jnp.asarray(keep),
    )
    ridge = 10 ** rng.uniform(-4, 1) * some(-4, 4)
    bandwidth = 10 ** rng.uniform(-0.5, 0.5) * some(-2, 2)
    return Case(task, np.float32(ridge), np.float32(bandwidth))


class Truth(NamedTuple):
    """Exact mean and variance at the queries, and the scale of each.

    As in `icl_krr.status`, these are the largest of all |f| and |y|, and k(x, x).
    """

    mean: Any
    variance: Any
    sizes: Any
    prior: Any


KERNELS: dict[str, tuple[Callable[[Any], ik.Kernel], Callable[..., Any]]] = {
    "linear": (lambda bandwidth: ik.Linear(), lambda xz, d, b: None),
    "exponential": (ik.Exponential, lambda xz, d, b: xz / b),
    "gaussian": (ik.Gaussian, lambda xz, d, b: -d / (2 * b * b)),
}


def exact(name: str, case: Case) -> Truth | None:
    """Solve one task in 60 digits more than its kernel matrix spans, or return None."""
    log = KERNELS[name][1]
    keep = np.asarray(case.task.mask)
    x, y, asked = (
        [[mpmath.mpf(float(v)) for v in np.ravel(row)] for row in np.asarray(rows)]
        for rows in (case.task.x[keep], case.task.y[keep], case.task.x_query)
    )
    ridge, bandwidth = mpmath.mpf(float(case.ridge)), mpmath.mpf(float(case.bandwidth))
    mpmath.mp.dps = 60

    def k(a: list[Any], b: list[Any]) -> Any:
        product = mpmath.fdot(a, b)
        logarithm = log(product, sum((u - v) ** 2 for u, v in zip(a, b, strict=True)), bandwidth)
        return product if logarithm is None else mpmath.exp(logarithm)

    prior = [k(point, point) for point in asked]
    if not x:
        zero = [mpmath.mpf(0)] * len(asked)
        return Truth(zero, prior, zero, prior)
    spread = mpmath.log10(max([ridge, *(k(point, point) for point in x)]) / ridge)
    if spread > LARGEST_SPREAD:
        return None
    mpmath.mp.dps = 60 + int(2 * spread)
    prior = [k(point, point) for point in asked]
    A = mpmath.matrix([[k(a, b) + (ridge if a is b else 0) for b in x] for a in x])
    lower, order = mpmath.mp.LU_decomp(A)
    solve = lambda b: mpmath.mp.U_solve(lower, mpmath.mp.L_solve(lower, b, order))  # noqa: E731
    alpha, largest = solve(mpmath.matrix([row[0] for row in y])), max(abs(row[0]) for row in y)
    mean, variance = [], []
    for point, own in zip(asked, prior, strict=True):
        cross = mpmath.matrix([k(point, a) for a in x])
        mean.append(mpmath.fdot(cross, alpha))
        variance.append(own - mpmath.fdot(cross, solve(cross)))
    return Truth(mean, variance, [max([largest, *map(abs, mean)])] * len(mean), prior)


def error(values: np.ndarray, truth: Any, sizes: Any) -> float:
    """The largest error at a query, relative to its scale; infinite if a value is not finite."""
    if not np.all(np.isfinite(values)):
        return np.inf
    gaps = [
        abs(mpmath.mpf(float(value)) - true) / size if size else abs(float(value))
        for value, true, size in zip(values, truth, sizes, strict=True)
    ]
    return float(max(gaps))


Run = Callable[[ik.Kernel, ik.Task, jax.Array], tuple[jax.Array, jax.Array | None, jax.Array]]


def solver(name: str, kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    options: dict[str, Any] = {"ridge": ridge, "steps": STEPS}
    if name in ("chebyshev", "gradient_descent"):
        options["spectrum"] = ik.spectral_bounds(kernel, task, ridge=ridge)
    found = getattr(ik.solvers, name)(kernel, task, **options)
    return found.prediction[-1], None, found.status.ok


def construction(name: str, kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    model = built(name, kernel, task, ridge)
    return ik.predict(model, task), None, ik.check(model, task).ok


def built(name: str, kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> ik.Transformer:
    options: dict[str, Any] = {"num_features": FEATURES, "ridge": ridge, "steps": STEPS}
    if name in ("chebyshev", "gradient_descent"):
        options["spectrum"] = ik.spectral_bounds(kernel, task, ridge=ridge)
    return getattr(ik.constructions, name)(kernel, **options)


def direct(kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    found = ik.solvers.exact(kernel, task, ridge=ridge)
    return found.prediction, None, found.status.ok


def direct_posterior(kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    found = ik.solvers.posterior(kernel, task, ridge=ridge)
    return found.mean, found.variance, found.status.ok


def posterior(name: str, kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    found = ik.posterior(built(name, kernel, task, ridge), kernel, task)
    return found.mean, found.variance, found.status.ok


SUBJECTS: dict[str, Run] = {
    "`solvers.exact`": direct,
    "`solvers.posterior`": direct_posterior,
    **{
        f"`solvers.{name}`": partial(solver, name)
        for name in ("conjugate_gradient", "chebyshev", "gradient_descent", "richardson")
    },
    **{
        f"`check` of `{name}`": partial(construction, name)
        for name in ("conjugate_gradient", "chebyshev", "gradient_descent", "richardson")
    },
    **{
        f"`posterior` of `{name}`": partial(posterior, name)
        for name in ("conjugate_gradient", "chebyshev", "richardson")
    },
}

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


def attempt(call: Run, kernel: ik.Kernel, case: Case) -> Any:
    """Run a subject; a refusal, as of bounds that are not finite, counts as a report."""
    try:
        return call(kernel, case.task, jnp.asarray(case.ridge))
    except ValueError:
        return jnp.full(QUERIES, jnp.nan), None, False


class Found(NamedTuple):
    subject: str
    kernel: str
    number: int
    error: float
    ok: bool


def run(seed: int, cases: int, subjects: Iterable[str] = tuple(SUBJECTS)) -> Iterator[Found]:
    """Yield the error and the status of the subjects on `cases` tasks for each kernel."""
    for kernel, (make, _) in KERNELS.items():
        rng = np.random.default_rng([seed, *kernel.encode()])
        drawn = [draw(rng, extreme=bool(i % 2)) for i in range(cases)]
        truths = [exact(kernel, case) for case in track(drawn, f"truths, {kernel}")]
        for subject in track(subjects, f"results, {kernel}"):
            if kernel == "linear" and "richardson" in subject:
                continue
            runs = [attempt(SUBJECTS[subject], make(case.bandwidth), case) for case in drawn]
            means, variances, fine = zip(*runs, strict=True)
            for i, truth in enumerate(truths):
                if truth is None:
                    yield Found(subject, kernel, i, np.inf, bool(fine[i]))
                    continue
                worst = error(np.asarray(means[i]), truth.mean, truth.sizes)
                if variances[i] is not None:
                    of_variance = error(np.asarray(variances[i]), truth.variance, truth.prior)
                    worst = max(worst, of_variance)
                yield Found(subject, kernel, i, worst, bool(fine[i]))


def table(found: list[Found]) -> Lines:
    counts = Counter((one.subject, outcome(one.error, one.ok)) for one in found)
    lines = []
    for subject in (*dict.fromkeys(one.subject for one in found), "all"):
        line = [
            sum(n for (name, what), n in counts.items() if what == o and subject in (name, "all"))
            for o in OUTCOMES
        ]
        lines.append([subject, *map(str, (sum(line), *line))])
    return ["result", "cases", *OUTCOMES], lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=130, help="tasks for each kernel")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tasks")
    parser.add_argument("--quick", action="store_true", help="smoke test; writes no files")
    asked = parser.parse_args()
    found = list(run(asked.seed, 4 if asked.quick else asked.cases))
    content = to_markdown(table(found))
    print(content)
    for one in found:
        if (what := outcome(one.error, one.ok)) in FAULTS:
            print(f"{what}: {one}")
    if asked.quick:
        return
    device = jax.devices()[0]
    meta = {
        "command": f"python -m benchmarks.random_cases --seed {asked.seed}",
        "seed": asked.seed,
        "cases": asked.cases,
        "device": f"{device.platform}: {device.device_kind}",
        "dtype": "float32",
        "versions": {name: version(name) for name in ("icl_krr", "jax", "jaxlib", "mpmath")},
    }
    record = {"meta": meta, "found": [one._asdict() for one in found]}
    replace(HERE / "results/random_cases.json", (to_json(record) + "\n").encode())
    replace(HERE / "results/random_cases.md", content.encode())


if __name__ == "__main__":
    main()
