"""`python -m benchmarks.fast_weights`: what delta rules compute, beside a Mesa layer's regression.

It takes 6 minutes of CPU time.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from matplotlib.figure import Figure

import icl_krr as ik
from benchmarks import records
from icl_krr.experiments import format_number, to_markdown
from icl_krr.plots import curves_figure

FEATURES, SUPPORTS, MEMORY, END = 16, 128, 30.0, 16
"""Sizes; tokens after which a drifting function has the correlation 1/e; positions of the end."""
NOISES, TUNING, SCORING = (0.01, 0.1), 32, 256
SEARCHES, ROUNDS, DRAWS = 4, 8, 32
"""Every method is tuned by so many searches. A search has rounds of random draws, each in a box
half as wide around the best one so far."""
BOXES = {  # parameter: lowest and highest value of its draws, and the parameter from a draw
    "step_size": (1e-3, 1e2, lambda v: v),
    "momentum": (1e-2, 1.0, lambda v: 1 - v),
    "decay": (1e-4, 0.5, lambda v: 1 - v),
    "gate": (1e-4, 0.5, lambda v: 1 - v),
    "initial": (1e-2, 1e2, lambda v: v),
    "squash": (1.1, 1e2, lambda v: v),
    "center": (1e-2, 1e2, np.log),
    "ridge": (1e-3, 1e2, lambda v: v),
    "process_noise": (1e-6, 1.0, lambda v: v),
    "info_scale": (1e-2, 1e1, lambda v: v),
    "window": (4.0, float(SUPPORTS), np.round),
}
CYCLED, CYCLES, RIDGE, SLOW = (8, 64), 1000, 0.1, 0.05
SEEDS, LENGTHS, HALVES = 8, (64, 512), ("bfloat16", "float16")
CHANNELS, LONGEST, DIVERGING = 64, 96, 3

EXACT = "exact posterior"

Parameters = dict[str, Any]


class Method(NamedTuple):
    """A function of the numbers that returns a start and a step, as rules of `delta_rules` do.

    `cost` is multiplications for a token and numbers of the state, from m features and r outputs.
    `oracle` is the solver and its further keywords.
    """

    rule: Callable
    parameters: str
    states: str
    cost: tuple[str, ...]
    oracle: Any


def mesa(ridge):
    """The sums b and C of a Mesa layer, without the pair that has left its window."""

    def step(token, b, C):
        old, y = token.x
        C = token.gate * C + jnp.outer(token.phi, token.phi) - jnp.outer(old, old)
        return (b + jnp.outer(token.phi, token.y) - jnp.outer(old, y), C), token.y

    return lambda m, r: (jnp.zeros((m, m)),), step


def solved(ridge, b, C):
    return cho_solve((jnp.linalg.cholesky(C + ridge * jnp.eye(len(C))), True), b)


def of_rule(oracle: Any, names: str, states: str, *cost: str, **words: Any) -> Method:
    """A method of a solver, with further keywords."""
    return Method(partial(oracle.function, **words), names, states, cost, partial(oracle, **words))


def kalman_filter(noise):
    """The exact posterior mean, with the full covariance; the gate is the correlation rho."""

    def step(token, w, P):
        gain, decay = P @ token.phi, token.gate**2
        size = token.phi @ gain + noise
        w = w + jnp.outer(gain, token.error(w) / size)
        P = decay * (P - jnp.outer(gain, gain) / size)
        return (w, P + (1 - decay) * jnp.eye(len(P)) / len(P)), token.y

    return lambda m, r: (jnp.eye(m) / m,), step


of = ik.solvers
MESA = Method(
    mesa, "ridge", "b C", ("m**3 // 6 + 3*m*m + 3*m*r", "m*m + m*r"),
    partial(of.prefix_posterior, steps=3 * FEATURES),
)  # fmt: skip
GATED = "step_size gate"
CURVED = "4*m*r + 4*m + r", "m*r + m"
KALMAN = "ridge process_noise info_scale gate"
METHODS = {
    "delta rule": of_rule(of.delta_rule, "step_size", "S", "4*m*r + r", "m*r"),
    "delta rule, normalised": of_rule(
        of.delta_rule, "step_size", "S", "4*m*r + m + r", "m*r", normalised=True
    ),
    "gated delta rule": of_rule(of.delta_rule, GATED, "S", "4*m*r + r", "m*r"),
    "momentum": of_rule(
        of.momentum_delta_rule, "step_size momentum decay gate", "S M", "5*m*r + r", "2*m*r"
    ),
    "implicit": of_rule(of.implicit_delta_rule, GATED, "S", "4*m*r + m + r", "m*r"),
    "preconditioned, 1 / A": of_rule(
        of.preconditioned_delta_rule, "step_size initial gate", "S A", *CURVED
    ),
    "preconditioned, squashed": of_rule(
        of.preconditioned_delta_rule, "step_size initial squash center gate", "S A", *CURVED
    ),
    "Kalman, isotropic": of_rule(
        of.kalman_delta_rule, KALMAN, "S p", "4*m*r + 3*m + r", "m*r + 1", covariance="isotropic"
    ),
    "Kalman, diagonal": of_rule(of.kalman_delta_rule, KALMAN, "S p", "4*m*r + 8*m + r", "m*r + m"),
    "Mesa": MESA,
    "Mesa, gated": MESA._replace(parameters="ridge gate"),
    "Mesa, window": MESA._replace(parameters="ridge window", oracle=None),
    EXACT: Method(kalman_filter, "", "w P", ("3*m*m + 4*m*r", "m*m + m*r"), None),
}


def follow(method: Method, values: Parameters, x: Any, y: Any, half: tuple | None = None) -> tuple:
    """Predictions [n] before each write, and the last states, from numbers or vectors [n].

    `half` is a state's number, the dtype that it is kept in, and whether its inverse is kept.
    """
    numbers = {name: value for name, value in values.items() if name not in ("gate", "window")}
    rest, rule = method.rule(**numbers)
    gate, at = jnp.asarray(values.get("gate", 1.0)), jnp.arange(len(y))
    leaves = at - jnp.asarray(values.get("window", len(y)), int)
    old = [jnp.where((leaves >= 0).reshape(-1, *[1] * (v.ndim - 1)), v[leaves], 0) for v in (x, y)]

    def step(states, token):
        phi, target, *leaving = token
        decayed = (gate * states[0], *states[1:])
        each: Any = phi
        read = decayed[0]
        if method.rule is mesa:
            read = solved(values["ridge"], decayed[0], gate * decayed[1])
            each = leaving[0], leaving[1][None]
        one = jnp.ones(())
        token = of.Token(phi, target[None], gate[None], one, one, jnp.array(True), each)
        after, _ = rule(token, *decayed)
        if half is not None:
            i, dtype, inverse = half
            low = (1 / after[i] if inverse else after[i]).astype(dtype).astype(phi.dtype)
            after = (*after[:i], 1 / low if inverse else low, *after[i + 1 :])
        return after, (phi @ read)[0]

    m = x.shape[1]
    start = jnp.zeros((m, 1)), *map(jnp.asarray, rest(m, 1) if rest else ())
    states, f = jax.lax.scan(step, start, (x, y, *old))
    return f, states


DRIFTS = ("stationary", "drifting")


class Kind(NamedTuple):
    """Linear tasks with keys of deviations 1 / i, and w ~ N(0, I / m).

    A function that drifts has w_t = rho w_(t - 1) + sqrt(1 - rho^2) z. Turned keys are multiplied
    by an orthogonal matrix, another one in each task.
    """

    noise: float
    drifts: bool = False
    turned: bool = False

    @property
    def rho(self) -> float:
        return math.exp(-1 / MEMORY) if self.drifts else 1.0

    def __str__(self) -> str:
        turned = "keys turned, " if self.turned else ""
        return f"{DRIFTS[self.drifts]}, {turned}noise {self.noise}"


KINDS = (*(Kind(noise, drifts) for drifts, noise in product((False, True), NOISES)),
         *(Kind(NOISES[0], drifts, turned=True) for drifts in (False, True)))  # fmt: skip


def draw(seed: int, count: int, kind: Kind) -> tuple[np.ndarray, ...]:
    """Keys [b, n, m], outputs [b, n] and functions [b, n]."""
    rng, rho = np.random.default_rng(seed), kind.rho
    deviations = 1 / np.arange(1, FEATURES + 1)
    x = rng.standard_normal((count, SUPPORTS, FEATURES)) * deviations
    if kind.turned:
        x = x @ np.linalg.qr(rng.standard_normal((count, FEATURES, FEATURES)))[0]
    w, f = rng.standard_normal((count, FEATURES)), np.empty((count, SUPPORTS))
    for i in range(SUPPORTS):
        f[:, i] = np.sum(x[:, i] * w, axis=1) / FEATURES**0.5
        w = rho * w + (1 - rho**2) ** 0.5 * rng.standard_normal(w.shape)
    return x, f + kind.noise**0.5 * rng.standard_normal(f.shape), f


def errors(f: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Squared errors in units of the variance of the function before any support."""
    return (f - true) ** 2 / np.mean(np.arange(1, FEATURES + 1) ** -2.0)


@partial(jax.jit, static_argnums=0)
def each(name: str, parameters: Parameters, x: Any, y: Any) -> Any:
    """Predictions [candidate, task, n]."""

    def on_task(task):
        return jax.vmap(lambda parameters: follow(METHODS[name], parameters, *task)[0])(parameters)

    return jnp.swapaxes(jax.lax.map(on_task, (x, y), batch_size=8), 0, 1)


def tune(name: str, tasks: tuple[np.ndarray, ...], draws: int, seed: int) -> Parameters:
    """The parameters with the smallest mean error on the tasks."""
    rng, names = np.random.default_rng(seed), METHODS[name].parameters.split()
    low, high = (np.log([BOXES[key][i] for key in names]) for i in (0, 1))
    best, least = np.tile((low + high) / 2, (SEARCHES, 1)), np.full(SEARCHES, np.inf)
    for k in range(ROUNDS):
        width = (high - low) / 2**k
        corner = np.clip(best - width / 2, low, high - width)[:, None]
        draws_in_box = corner + width * rng.random((SEARCHES, draws, len(names)))
        f = each(name, from_logs(names, draws_in_box.reshape(-1, len(names))), *tasks[:2])
        scores = np.nan_to_num(errors(np.asarray(f), tasks[2]).mean((1, 2)), nan=np.inf)
        scores = scores.reshape(SEARCHES, draws)
        for i, j in enumerate(np.argmin(scores, axis=1)):
            if scores[i, j] < least[i]:
                best[i], least[i] = draws_in_box[i, j], scores[i, j]
    chosen = from_logs(names, best[np.argmin(least)])
    return {key: float(value) for key, value in chosen.items()}


def from_logs(names: list[str], logs: np.ndarray) -> Parameters:
    return {key: BOXES[key][2](np.exp(logs[..., i])) for i, key in enumerate(names)}


def interval(values: np.ndarray) -> list[float]:
    """Median, and its 95 % bootstrap interval over tasks."""
    chosen = np.random.default_rng(0).integers(0, len(values), (1000, len(values)))
    low, high = np.percentile(np.median(values[chosen], axis=1), (2.5, 97.5))
    return [float(np.median(values)), float(low), float(high)]


def contest(kind: Kind, sizes: tuple[int, int, int], seed: int) -> records.Row:
    """Errors of all methods, tuned alike, for one kind of task."""
    tuning, scoring, draws = sizes
    tasks, (x, y, true) = draw(seed, tuning, kind), draw(seed + 1, scoring, kind)
    means = np.cumsum(y, axis=1)[:, :-1] / np.arange(1, SUPPORTS)
    f = {"zero": 0 * y, "mean of y": np.pad(means, ((0, 0), (1, 0)))}
    chosen, not_ok = {}, {}
    for name, method in METHODS.items():
        print(f"{kind}: {name}", flush=True)
        chosen[name] = tune(name, tasks, draws, seed) if method.parameters else {}
        parameters = chosen[name] or {"noise": kind.noise, "gate": kind.rho}
        one = {key: np.array([value]) for key, value in parameters.items()}
        f[name] = np.asarray(each(name, one, x, y))[0]
        not_ok[name] = agrees(name, parameters, x, y, f[name])
    error = {name: errors(value, true) for name, value in f.items()}
    best, regression = error[EXACT], error["Mesa, gated"]
    rows = {
        name: {
            "error": interval(e.mean(1)), "at the end": interval(e[:, -END:].mean(1)),
            "regret": interval((e - best).sum(1)), "ratio": interval(e.mean(1) / best.mean(1)),
            "minus Mesa": interval((e - regression).sum(1)), "not ok": not_ok.get(name),
            "parameters": chosen.get(name, {}), "curve": [float(f"{v:.4g}") for v in e.mean(0)],
        }
        for name, e in error.items()
    }  # fmt: skip
    return {"kind": str(kind), "seeds": [seed, seed + 1], "rows": rows}


def agrees(name: str, parameters: Parameters, x: Any, y: Any, f: np.ndarray) -> int | None:
    """Check 4 tasks against the oracle, and count the tasks whose status is not ok in float32."""
    oracle = METHODS[name].oracle
    if oracle is None:
        return None
    words = {key: value for key, value in parameters.items() if key != "gate"}
    words["log_gate"] = math.log(parameters.get("gate", 1.0))
    on_task = lambda x, y: oracle(ik.Linear(), ik.Task(x, y, x_query=x[:1]), **words)  # noqa: E731
    run = jax.jit(jax.vmap(on_task))
    gap = np.abs(run(x[:4], y[:4]).along[:, -1, :-1] - f[:4]).max() / np.abs(f[:4]).max()
    if not gap < 1e-9:
        raise AssertionError(f"{name} differs from its oracle by {gap}")
    if METHODS[name].rule is mesa:
        return None
    chunks = np.split(np.arange(len(x)), max(1, len(x) // 32))
    low = (run(*(jnp.asarray(v[i], "float32") for v in (x, y))).status.ok for i in chunks)
    return sum(int(np.sum(~np.asarray(ok))) for ok in low)


STEADY: dict[str, Callable[[int], Parameters]] = {  # parameters, from the number of supports
    "delta rule": lambda n: {"step_size": 0.2},
    "delta rule, normalised": lambda n: {"step_size": 0.5},
    "gated delta rule": lambda n: {"step_size": SLOW, "gate": 1 - RIDGE * SLOW / n},
    "momentum": lambda n: {"step_size": 0.1, "momentum": 0.5, "decay": 1.0},
    "implicit": lambda n: {"step_size": 1.0},
    "preconditioned, 1 / A": lambda n: {"step_size": 1.0, "initial": 1.0},
    "preconditioned, squashed": lambda n: {"step_size": 1.0, "initial": 1.0, "squash": 4.0},
    "Kalman, isotropic": lambda n: {"ridge": RIDGE, "process_noise": 0.0, "info_scale": 1.0},
    "Kalman, diagonal": lambda n: {"ridge": RIDGE, "process_noise": 0.0, "info_scale": 1.0},
    "Mesa": lambda n: {"ridge": RIDGE},
}
"""Parameters that are not tuned. With these, the gate acts as the ridge RIDGE does."""


def fixed_points(cycles: int, seed: int) -> list[records.Row]:
    """Relative distances of what is learned from supports that come again and again."""
    few, many = CYCLED
    x, y, f = draw(seed, SEEDS, Kind(RIDGE))
    X, target, long, noisy = x[:, :few], f[:, :few], x[:, :many], y[:, :many]
    kernel = X @ X.mT + RIDGE * np.eye(few)
    least_norm = np.linalg.pinv(X) @ target[..., None]
    ridge = X.mT @ np.linalg.solve(kernel, target[..., None])
    least_squares = np.linalg.pinv(long) @ noisy[..., None]
    rows = []
    for name, parameters in STEADY.items():
        print(f"{cycles} cycles: {name}", flush=True)
        w = final_weights(name, parameters(few), X, target, cycles)
        w_of_many = final_weights(name, parameters(many), long, noisy, cycles)
        back = final_weights(name, parameters(few), X[:, ::-1], target[:, ::-1], cycles)
        pairs = {
            "supports": ((X @ w)[..., 0], target),
            "least norm": (w, least_norm),
            "ridge": (w, ridge),
            "other order": (back, w),
            "least squares": (w_of_many, least_squares),
        }
        rows.append({"method": name, **{aim: relative(*pair) for aim, pair in pairs.items()}})
    return rows


def final_weights(name: str, parameters: Parameters, x: Any, y: Any, cycles: int) -> np.ndarray:
    method = METHODS[name]

    def last(x, y):
        states = follow(method, parameters, jnp.tile(x, (cycles, 1)), jnp.tile(y, cycles))[1]
        return solved(parameters["ridge"], *states) if method.rule is mesa else states[0]

    return np.asarray(jax.jit(jax.vmap(last))(x, y))


def relative(values: Any, targets: Any) -> float:
    """The median relative distance over tasks."""
    sizes = [np.linalg.norm(v.reshape(len(v), -1), axis=1) for v in (values - targets, targets)]
    return float(np.median(sizes[0] / sizes[1]))


def halves(lengths: tuple[int, ...], seed: int) -> list[records.Row]:
    """Changes of the predictions if one state is rounded after every token; keys of length 1."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((SEEDS, max(lengths), FEATURES)) / np.arange(1, FEATURES + 1) ** 0.5
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    y = np.einsum("bnm,bm->bn", x, rng.standard_normal((SEEDS, FEATURES)))
    y += 0.1 * rng.standard_normal(y.shape)
    cases = [
        (name, parameters(1), i, form + state)
        for name, parameters in (*STEADY.items(), ("Mesa", lambda n: {"ridge": RIDGE / 100}))
        if name not in ("delta rule, normalised", "gated delta rule")
        for i, state in enumerate(METHODS[name].states.split())
        for form in (("", "1 / ") if state == "p" else ("",))
    ]
    rows = []
    for name, parameters, i, state in cases:
        print(f"rounding: {name}, {state}", flush=True)
        row: records.Row = {"method": name, "ridge": parameters.get("ridge"), "state": state}
        for gate, dtype in product((1.0, math.exp(-1 / MEMORY)), HALVES):
            half = i, dtype, state.startswith("1")
            gated = parameters | {"gate": gate}
            f, low = (np.asarray(half_precision(name, h, gated, x, y)) for h in (None, half))
            for n in lengths:
                row[f"{dtype}, gate {gate:.3g}, n = {n}"] = relative(low[:, :n], f[:, :n])
        rows.append(row)
    return rows


@partial(jax.jit, static_argnums=(0, 1))
def half_precision(name: str, half: tuple | None, parameters: Parameters, x: Any, y: Any) -> Any:
    return jax.vmap(lambda x, y: follow(METHODS[name], parameters, x, y, half)[0])(x, y)


def divergences(longest: int, seed: int) -> list[records.Row]:
    """The numbers of raw normal keys from which a status says so, and numbers are not finite."""
    rng, rows = np.random.default_rng(seed), []
    x = rng.standard_normal((DIVERGING, longest, CHANNELS)).astype("float32")
    y = rng.standard_normal((DIVERGING, longest)).astype("float32")
    masks = np.arange(longest) < np.arange(1, longest + 1)[:, None]
    ours = {"step_size": 1.0, "momentum": 0.9, "ridge": 1.0}
    for name, parameters in STEADY.items():
        if METHODS[name].rule is mesa:
            continue
        print(f"divergence: {name}", flush=True)
        words = {key: ours.get(key, v) for key, v in parameters(1).items() if key != "gate"}
        if name == "gated delta rule":
            words["log_gate"] = -1 / MEMORY

        def on_tasks(mask, oracle=METHODS[name].oracle, words=words):
            def on_task(x, y):
                path = oracle(ik.Linear(), ik.Task(x, y, x_query=x[:1], mask=mask), **words)
                return path.status.grows, ~jnp.all(jnp.isfinite(path.along[-1]))

            return jax.vmap(on_task)(x, y)

        diverged, bad = jax.jit(partial(jax.lax.map, on_tasks))(masks)
        row: records.Row = {"method": name}
        for key, counts in (("status", diverged), ("NaN", bad)):
            counts = np.asarray(counts).T
            row[key] = [int(np.argmax(one)) + 1 if one.any() else None for one in counts]
        rows.append(row)
    return rows


MEASURES = ("error", "at the end", "ratio", "regret", "minus Mesa")
DOTS = ("momentum", "exact posterior")
LINES = ("gated delta rule", "implicit", "preconditioned, 1 / A", "Kalman, isotropic")
DRAWN = (*LINES, "Kalman, diagonal", "Mesa, gated", *DOTS)
"""Rules that are drawn; the curves of `DOTS` would hide others."""


def document(record: records.Row) -> str:
    """All tables of a record, each with a line that says what it has."""
    sizes = ((16, 1), (128, 128))
    header = ["method", "multiplications", "numbers of state"]
    header += [f"{what}, m = {m}, r = {r}" for m, r in sizes for what in header[1:]]
    lines = [
        [name, *cost, *(str(eval(one, {"m": m, "r": r})) for m, r in sizes for one in cost)]
        for name, cost in record["costs"].items()
    ]
    parts = [
        "Cost of a token, with its gate, its write and one read, for m features and r outputs. "
        "Mesa solves by Cholesky; a window also keeps its pairs, m + r numbers each:",
        to_markdown((header, lines)),
    ]
    columns = ["method", *MEASURES, "not distinguishable from Mesa", "status not ok"]
    for one in record["contests"]:
        lines = []
        for name, row in one["rows"].items():
            _, low, high = row["minus Mesa"]
            same = "yes" if low <= 0 <= high else "no"
            lines.append([name, *(spread(row[k]) for k in MEASURES), same, as_text(row["not ok"])])
        parts += [
            f"Tasks: {one['kind']} (seeds {', '.join(map(str, one['seeds']))}). "
            "Medians and 95 % intervals over tasks; errors in units of the variance of "
            "the function, regret: sum over positions of what is above the error of the exact "
            "posterior, minus Mesa: the same beside gated Mesa:",
            to_markdown((columns, lines)),
        ]
    for title, key in TITLES.items():
        names = record[key][0]
        reads = {name: lambda row, name=name: as_text(row.get(name, "refused")) for name in names}
        parts += [title, to_markdown(records.table(record[key], reads))]
    return "\n".join(parts)


TITLES = {
    "Eight supports without noise, and 64 with noise, that come again 1000 times: relative "
    "distance of the predictions from y at the supports, and of w from the interpolation of least "
    "norm, from ridge regression (0.1) on the supports once, from w after the other order, and of "
    "w of the noisy supports from least squares. Medians over 8 tasks:": "fixed points",
    "One state is rounded after each token: change of the predictions relative to their size, "
    "medians over 8 seeds; - is not finite:": "rounding",
    "Raw normal keys with 64 channels, step size 1, ridge 1, float32: number of supports from "
    "which the status says that the rule diverges, and from which a number is not finite; three "
    "seeds; - is never up to 96:": "divergence",
}


def as_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(as_text(one) for one in value)
    if value is None:
        return "-"
    return format_number(value, 2) if isinstance(value, float) else str(value)


def spread(values: list[float]) -> str:
    middle, low, high = (format_number(value) for value in values)
    return f"{middle} ({low} to {high})"


def errors_figure(record: records.Row, kind: str) -> Figure:
    """Error against the number of supports before a token, a panel for each kind of such tasks."""
    panels: dict[str, records.Row] = {}
    for one in record["contests"]:
        n = len(one["rows"]["zero"]["curve"])
        edges = np.unique(np.geomspace(1, n, 13).round().astype(int))
        middle = (edges[:-1] + edges[1:] - 1) / 2
        if one["kind"].startswith(kind):
            curves = panels[f"supports before the token\n({one['kind']})"] = {}
            for name in DRAWN:
                curve = np.array(one["rows"][name]["curve"])[1:]
                curves[name] = middle, [curve[a - 1 : b - 1].mean() for a, b in pairwise(edges)]
    facts = "means over {tasks} tasks, seeds from {seed}, float64".format(**record["meta"])
    title, words = f"delta rules and Mesa layers, tuned alike: {facts}", "squared error / variance"
    return curves_figure(panels, words, title, log="xy", lines={"zero": 1}, dots=DOTS)


def main() -> None:
    args = records.options(__doc__, seed="first seed of the tasks")
    jax.config.update("jax_enable_x64", True)
    sizes, kinds = (TUNING, SCORING, DRAWS), KINDS
    if args.quick:
        sizes, kinds = (2, 4, 2), KINDS[:1]
    facts = {"evaluations": SEARCHES * ROUNDS * DRAWS, "tuning tasks": TUNING, "tasks": SCORING}
    facts |= {"seed": args.seed, "dtype": "float64; status and divergence in float32"}
    record: records.Row = {
        "meta": records.meta("fast_weights", **facts),
        "costs": {name: method.cost for name, method in METHODS.items()},
        "contests": [contest(kind, sizes, args.seed + 2 * i) for i, kind in enumerate(kinds)],
        "fixed points": fixed_points(3 if args.quick else CYCLES, args.seed),
        "rounding": halves(LENGTHS[:1] if args.quick else LENGTHS, args.seed),
        "divergence": divergences(4 if args.quick else LONGEST, args.seed),
    }
    figures = {f"fast-weights-{kind}": partial(errors_figure, kind=kind) for kind in DRIFTS}
    records.finish("fast-weights", record, document, args.quick, figures)


if __name__ == "__main__":
    main()
