"""`python -m benchmarks.random_cases`: count wrong numbers that no status reports."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mpmath
import numpy as np

import icl_krr as ik
from benchmarks import records
from icl_krr.experiments import Lines, to_markdown

SUPPORTS, FEATURES, QUERIES, STEPS = 12, 3, 4, 24
DTYPES = ("float32", "float64")
TOLERANCE = 1e-2
"""A value is wrong if its error exceeds this. It is right if its error is below a tenth of this."""
LARGEST_SPREAD = 650
"""Decimal digits that a kernel matrix may span: float64 spans 616, beyond this nothing is right."""
ROUNDS, CASES = 11, 40
"""Rounds, each with a seed of its own, and the tasks of a kernel in a round."""
SHOWN = 200
"""Faults that the record lists one by one."""
KERNELS: dict[str, Callable[[Any], ik.Kernel]] = {
    "linear": lambda bandwidth: ik.Linear(),
    "exponential": ik.Exponential,
    "gaussian": ik.Gaussian,
}
SMOOTH = ("exponential", "gaussian")
FAULTS = ("right, reported", "wrong, ok", "not finite, ok")
KINDS = ("right", "between", "wrong", "not finite")
OUTCOMES = [f"{kind}, {word}" for kind in KINDS for word in ("ok", "reported")]


class Case(NamedTuple):
    task: ik.Task
    ridge: np.floating
    bandwidth: np.floating


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
    y = rng.normal(size=SUPPORTS) * some(-25, 25)
    x, y, x_query = (jnp.asarray(part, dtype) for part in (x, y, x_query))
    task = ik.Task(x=x, y=y, x_query=x_query, mask=jnp.asarray(keep))
    number = np.dtype(dtype).type
    ridge = number(10 ** rng.uniform(-4, 1) * some(-4, 4))
    return Case(task, ridge, number(10 ** rng.uniform(-0.5, 0.5) * some(-2, 2)))


exp: Callable[[Any], np.ndarray] = np.frompyfunc(mpmath.exp, 1, 1)
exact: Callable[[Any], np.ndarray] = np.frompyfunc(lambda v: mpmath.mpf(float(v)), 1, 1)


def measured(name: str, a: np.ndarray, b: np.ndarray, width: Any) -> tuple[Any, Any]:
    """Values [n, m] of a kernel, and their derivatives [n, m, p] by the first point."""
    a, b = a[:, None], b[None]
    if name == "gaussian":
        values = exp(-np.sum((a - b) ** 2, axis=2) / (2 * width**2))
        return values, values[..., None] * (b - a) / width**2
    values, scale = np.sum(a * b, axis=2), 1
    if name == "exponential":
        values = exp(values / width)
        scale = values[..., None] / width
    return values, scale * (b + 0 * a)


def truths(name: str, case: Case) -> dict[str, Any]:
    """The exact results by name: arrays, or tuples of an array and the scale of its errors.

    A lower bound has the least value that is right, too. Nothing is known of a matrix that spans
    too many digits.
    """
    mpmath.mp.dps, task = 60, case.task
    keep = np.asarray(task.mask)
    parts = (task.x[keep], task.y[keep], task.x_query, case.ridge, case.bandwidth)
    x, y, at, ridge, width = (exact(np.asarray(part, object)) for part in parts)
    of = lambda a, b: measured(name, a, b, width)  # noqa: E731
    spread = mpmath.log10(max([ridge, *np.diagonal(of(x, x)[0])]) / ridge)
    if spread > LARGEST_SPREAD:
        return {}
    mpmath.mp.dps = 60 + int(2 * spread)
    (K, gram), cross = of(x, x), of(at, x)[0]
    A_inverse, log_determinant = inverse(K + ridge * exact(np.eye(len(x)).astype(object)))
    alpha, hat, diagonal = A_inverse @ y, cross @ A_inverse, np.diagonal(A_inverse)
    prior = np.diagonal(of(at, at)[0])
    over_q = np.einsum("qnp,n->qp", of(at, x)[1], alpha)
    over_x = np.einsum("nqp,n->qnp", of(x, at)[1], alpha)
    over_x = over_x - np.einsum("qj,jmp,m->qjp", hat, gram, alpha)
    over_x = over_x - np.einsum("qm,jmp,j->qjp", hat, gram, alpha)
    evidence = -(y @ alpha + log_determinant + len(y) * mpmath.log(2 * mpmath.pi)) / 2
    symmetric: Any = mpmath.mp
    spectrum = symmetric.eigsy(mpmath.matrix(K.tolist()), eigvals_only=True) if len(x) else [0]
    mean, low = rounded(hat @ y), rounded(min(spectrum) + ridge)
    size = np.max(np.abs([0, *rounded(y), *mean]))

    def normalised(values: np.ndarray, axis: int = 0) -> np.ndarray:
        """Results of the supports that count, with zeros at masked supports."""
        whole = np.zeros((*values.shape[:axis], len(keep), *values.shape[axis + 1 :]))
        whole[(slice(None),) * axis + (keep,)] = rounded(values)
        return whole

    return {
        "prediction": (mean, size),
        "mean": mean,
        "variance": (rounded(prior - np.sum(hat * cross, axis=1)), rounded(prior)),
        "leave_one_out": normalised(alpha / diagonal),
        "evidence": rounded(evidence),
        "low": (low, low, rounded(ridge)),
        "high": rounded(max(spectrum) + ridge),
        "in y": normalised(hat, 1),
        "in ridge": rounded(-hat @ alpha),
        "in queries": rounded(over_q),
        "in supports": normalised(over_x, 1),
        "in weights": normalised(ridge * hat * alpha[None], 1),
        "without": normalised(-hat * (alpha / diagonal)[None], 1),
        "sum in y": normalised(np.sum(hat, axis=0)),
        "sum in supports": normalised(np.sum(over_x, axis=0)),
        "sum in ridge": rounded(-np.sum(hat @ alpha)),
    }


def rounded(values: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(np.frompyfunc(float, 1, 1)(np.asarray(values, object)), np.float64)


def inverse(A: np.ndarray) -> tuple[np.ndarray, Any]:
    """A^-1 and log det A by the elimination of Gauss and Jordan."""
    n, log = len(A), mpmath.mpf(0)
    both = np.concatenate([A, exact(np.eye(n).astype(object))], axis=1)
    for i in range(n):
        log += mpmath.log(both[i, i])
        both[i] /= both[i, i]
        others = both[:, i].copy()
        others[i] = mpmath.mpf(0)
        both -= others[:, None] * both[i][None]
    return both[:, n:], log


class Subject(NamedTuple):
    """A function that returns values and whether the status is ok, and the names of the truths.

    A batched function runs on all tasks in one program, because a construction is built in many
    small steps; the others run as a user calls them.
    """

    run: Callable[..., tuple[Any, jax.Array]]
    answers: tuple[str, ...] = ("prediction",)
    kernels: tuple[str, ...] = tuple(KERNELS)
    batched: bool = False


def solver_kwargs(name: str, kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> dict[str, Any]:
    """What a solver must be told."""
    kwargs: dict[str, Any] = {"ridge": ridge, "steps": STEPS}
    if "spectrum" in ROWS[name].required_inputs:
        kwargs["spectrum"] = bounds(kernel, task, ridge)
    if "num_supports" in ROWS[name].required_inputs:
        largest = jnp.max(kernel.diagonal(task.x), where=task.mask, initial=0)
        kwargs |= {"num_supports": task.num_supports, "largest": largest}
    return kwargs


ROWS = {
    row.function: row
    for row in ik.catalogue.SOLVERS.values()
    if row.iterates and not (row.causal or row.one_task or row.options)
}
"""Functions that solve a batch of tasks, with their rows; options are the same iterates again."""
OF_KIND = {"any": tuple(KERNELS), "featured": ("linear",), "positive": SMOOTH, "bounded": SMOOTH}
SOLVERS = {name: OF_KIND[row.kernels] for name, row in ROWS.items()}
"""These functions, with the kernels that they take."""


def solve(name: str, kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    solution = getattr(ik.solvers, name)(kernel, task, **solver_kwargs(name, kernel, task, ridge))
    return solution.prediction[-1], solution.status.ok


def build(name: str, kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> ik.Transformer:
    kwargs = solver_kwargs(name, kernel, task, ridge) | {"dtype": task.x.dtype}
    return getattr(ik.constructions, name)(kernel, num_features=task.num_features, **kwargs)


def check(name: str, *problem: Any) -> Any:
    model = build(name, *problem)
    return ik.predict(model, problem[1]), ik.check(model, problem[1]).ok


def exactly(call: str, names: tuple[str, ...], kernel: ik.Kernel, task: ik.Task, ridge: Any) -> Any:
    solution = getattr(ik.solvers, call)(kernel, task, ridge=ridge)
    return tuple(getattr(solution, name) for name in names), solution.status.ok


def posterior(name: str, *problem: Any) -> Any:
    result = ik.posterior(build(name, *problem), *problem[:2])
    return (result.mean, result.variance), result.status.ok


def audited(function: Callable, *problem: Any) -> Any:
    value, status = ik.audit(function, *problem)
    return value, status.ok


@partial(jax.jit, static_argnums=0)
def converged(name: str, *problem: Any) -> jax.Array:
    return check(name, *problem)[1]


def audited_steps(function: Callable, *problem: Any) -> Any:
    """An audit sees rounding; `icl_krr.check` sees that too few steps were taken."""
    value, ok = audited(function, *problem)
    with jax.enable_x64(True):
        return value, ok & converged("conjugate_gradient", *problem)


def called(name: str) -> Callable:
    return jax.jit(lambda kernel, task, ridge: getattr(ik.solvers, name)(kernel, task, ridge=ridge))


def bounds(kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    return ik.spectral_bounds(kernel, task, ridge=ridge)


def predicted(*problem: Any) -> jax.Array:
    return ik.predict(build("conjugate_gradient", *problem), problem[1])


def gradients(predict: Callable) -> Callable:
    """Those of the sum of the predictions in y, supports, queries and the ridge."""

    def value(kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
        def total(y: jax.Array, x: jax.Array, at: jax.Array, ridge: jax.Array) -> jax.Array:
            return jnp.sum(predict(kernel, task.replace(y=y, x=x, x_query=at), ridge))

        return jax.grad(total, argnums=(0, 1, 2, 3))(task.y, task.x, task.x_query, ridge)

    return jax.jit(value)


BOTH = ("prediction", "variance")
PLAIN = {
    "leave_one_out": ("leave_one_out",),
    "log_marginal_likelihood": ("evidence",),
    **{f"derivative_in_{of}": (f"in {of}",) for of in ("y", "ridge", "queries", "supports")},
    "derivative_in_weights": ("in weights",),
    "change_without": ("without",),
}
SLOPES = ("sum in y", "sum in supports", "in queries", "sum in ridge")
SLOPED: dict[str, tuple[Callable, Callable]] = {
    "`exact`": (audited, lambda *problem: exactly("exact", ("prediction",), *problem)[0][0]),
    "`solvers.conjugate_gradient`": (audited_steps, lambda *a: solve("conjugate_gradient", *a)[0]),
    "`predict`, `conjugate_gradient`": (audited_steps, predicted),
}
SUBJECTS: dict[str, Subject] = {
    "`solvers.exact`": Subject(partial(exactly, "exact", ("prediction",))),
    "`solvers.posterior`": Subject(partial(exactly, "posterior", ("mean", "variance")), BOTH),
    **{
        f"{words}{name}`": Subject(partial(run, name), kernels=kernels, batched=batched)
        for words, run, batched in (("`solvers.", solve, False), ("`check` of `", check, True))
        for name, kernels in SOLVERS.items()
    },
    **{
        f"`posterior` of `{name}`": Subject(partial(posterior, name), BOTH, SOLVERS[name], True)
        for name in ("conjugate_gradient", "chebyshev", "richardson")
    },
    **{
        f"`audit` of `{name}`": Subject(partial(audited, called(name)), answers)
        for name, answers in PLAIN.items()
    },
    "`audit` of `spectral_bounds`": Subject(partial(audited, jax.jit(bounds)), ("low", "high")),
    "`audit` of `predict` of `conjugate_gradient`": Subject(
        partial(audited_steps, jax.jit(predicted)), ("mean",)
    ),
    **{
        f"`audit` of gradients of {name}": Subject(partial(audit, gradients(predict)), SLOPES)
        for name, (audit, predict) in SLOPED.items()
    },
}


def outcome(error: float, ok: bool) -> str:
    if not np.isfinite(error):
        kind = "not finite"
    elif error > TOLERANCE:
        kind = "wrong"
    else:
        kind = "right" if error < TOLERANCE / 10 else "between"
    return f"{kind}, {'ok' if ok else 'reported'}"


def scaled_error(value: Any, truth: Any, dtype: str) -> float:
    """The largest error over its scale; infinite if a value is not finite or nothing is known.

    The scale is given with the truth, or the largest magnitude. Numbers of the size of the smallest
    normal one are as good as 0.
    """
    value = np.asarray(value, float)
    if truth is None or not np.all(np.isfinite(value)):
        return np.inf
    truth = truth if isinstance(truth, tuple) else (truth, np.max(np.abs(truth), initial=0))
    true, scale, least = truth if len(truth) == 3 else (*truth, truth[0])
    with np.errstate(all="ignore"):
        errors = np.maximum(value - true, least - value)
        errors = errors / np.maximum(scale, 100 * float(np.finfo(dtype).tiny))
    return float(np.max(np.where(np.isnan(errors), np.inf, errors), initial=0))


class CaseOutcome(NamedTuple):
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
        with jax.enable_x64(True):  # `icl_krr.check` compares in float64 here, as outside of jit
            values = jax.device_get(batched(subject.run, make)(*jax.tree.map(stack, *drawn)))
        yield from (jax.tree.map(lambda part, i=i: part[i], values) for i in range(len(drawn)))
        return
    with jax.enable_x64(dtype == "float64"):
        for case in drawn:
            try:
                kernel, ridge = make(jnp.asarray(case.bandwidth)), jnp.asarray(case.ridge)
                yield jax.device_get(subject.run(kernel, case.task, ridge))
            except ValueError:
                yield (np.full(QUERIES, np.nan),) * len(subject.answers), False


def run(
    seed: int, cases: int, subjects: Iterable[str] = tuple(SUBJECTS), dtypes: Iterable[str] = DTYPES
) -> Iterator[CaseOutcome]:
    """Yield the error and the status of the subjects on `cases` tasks, per kernel and dtype."""
    for dtype in dtypes:
        for kernel, make in KERNELS.items():
            rng = np.random.default_rng([seed, *kernel.encode()])
            with jax.enable_x64(dtype == "float64"):
                drawn = [draw(rng, bool(i % 2), dtype) for i in range(cases)]
            expected = [truths(kernel, case) for case in drawn]
            for name in subjects:
                subject = SUBJECTS[name]
                every = results(subject, make, drawn, dtype) if kernel in subject.kernels else ()
                for i, (values, ok) in enumerate(every):
                    pairs = zip(jax.tree.leaves(values), subject.answers, strict=True)
                    error = max(scaled_error(v, expected[i].get(key), dtype) for v, key in pairs)
                    yield CaseOutcome(name, dtype, kernel, seed, i, error, bool(ok))


def table(outcomes: list[CaseOutcome]) -> Lines:
    groups, lines = records.grouped(outcomes, lambda one: f"{one.subject}, {one.dtype}"), []
    for name, group in (groups | {"all": outcomes}).items():
        counts = Counter(outcome(one.error, one.ok) for one in group)
        lines.append([name, *map(str, (len(group), *(counts[kind] for kind in OUTCOMES)))])
    return ["result", "cases", *OUTCOMES], lines


def document(record: records.Row) -> str:
    rows = record["rows"]
    return to_markdown(([*rows[0]], [[*row.values()] for row in rows]))


def main() -> None:
    args = records.options(__doc__, seed="seed of the tasks")
    outcomes: list[CaseOutcome] = []
    for number in range(1 if args.quick else ROUNDS):
        print(f"round {number + 1}", flush=True)
        outcomes += run(args.seed + number, 4 if args.quick else CASES)
    faults = [one for one in outcomes if outcome(one.error, one.ok) in FAULTS]
    faults.sort(key=lambda one: one.ok, reverse=True)
    header, lines = table(outcomes)
    command = f"random_cases --seed {args.seed}"
    record = {
        "meta": records.meta(command, "mpmath", seed=args.seed, dtypes=DTYPES),
        "rows": [dict(zip(header, line, strict=True)) for line in lines],
        "number of faults": len(faults),
        "faults": [one._asdict() for one in faults[:SHOWN]],
    }
    records.finish("random_cases", record, document, args.quick)


if __name__ == "__main__":
    main()
