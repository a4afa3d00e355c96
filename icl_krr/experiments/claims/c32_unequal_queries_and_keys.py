"""C32: queries and keys with different weights: when attention scores are a kernel."""

from typing import NamedTuple

import jax
import numpy as np

from ... import Exponential, constructions, theory
from . import scores
from .claim import FAMILY, HOLDS, Claim, Verdict, at_least, at_most, judge, named
from .measuring import Plot, Rows, fields, tidy
from .scores import BIASES, EQUAL, FORMS, INDEFINITE, KEY_BIAS, UNEQUAL

TEMPERATURE = 4.0


class Config(NamedTuple):
    """Settings of the experiment. `runs` are trained models, and `tasks` evaluate each of them."""

    draws: int = 50
    num_features: int = 3
    num_supports: int = 16
    num_queries: int = 8
    ridge: float = 1.0
    runs: tuple[str, ...] = ("gp-encoder", "gp-encoder-hard")
    tasks: int = 256


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    found = fields(measure(jax.random.split(key, config.draws), config))
    change, cycle, solver, pair = found.change, found.cycle, found.solver, found.pair
    columns = {
        "asymmetry of the scores": cycle,
        "change by biases or weights": change,
        "gap of conjugate gradient": solver,
    }
    rows = tidy({"draw": range(config.draws), "weights": FORMS}, **columns)
    checks = {
        "|head - sum_j s(x, x_j) y_j / sum_j s(x, x_j)| / |y|_max <= 1e-12, "
        "s(x, z) = exp(<W_Q x, W_K z> / temperature)": at_most(found.head, 1e-12, stated=True),
        "change of the head by a key bias <= 1e-12": at_most(change[:, KEY_BIAS], 1e-12),
        "change of the head by a query bias, median, >= 1 %": at_least(
            np.median(change[:, BIASES]), 0.01
        ),
        "W_Q = W_K, any biases: |head - smoother of c(x) k(x, z) c(z)| / |y|_max <= 1e-12": at_most(
            found.smoother[:, :INDEFINITE], 1e-12
        ),
        "W_Q = W_K, any biases: -(smallest / largest eigenvalue) of c(x) k(x, "
        "z) c(z) <= 1e-12": at_most(-found.lowest, 1e-12),
        "indefinite W_Q^T W_K, points u and -u: |smallest eigenvalue - 2 sinh(mu / temperature)| "
        "<= 1e-12": at_most(abs(pair - found.expected), 1e-12),
        "indefinite W_Q^T W_K, points u and -u: smallest eigenvalue <= 0": at_most(pair, 0.0),
        "symmetric W_Q^T W_K, any biases: |log of s_12 s_23 "
        "s_31 / (s_21 s_32 s_13)| / largest logit <= 1e-12": at_most(cycle[:, :UNEQUAL], 1e-12),
        "unequal W_Q and W_K: |log of s_12 s_23 s_31 / (s_21 s_32 s_13)| / largest logit "
        ">= 0.01 for some three supports": at_least(cycle[:, UNEQUAL], 0.01),
        "W_Q = W_K: gap of conjugate gradient to (K + ridge I)^-1 y <= 1e-6": at_most(
            solver[:, EQUAL], 1e-6
        ),
        "unequal W_Q and W_K: gap of conjugate gradient to (S + ridge I)^-1 y, "
        "median, >= 5 %": at_least(np.median(solver[:, UNEQUAL]), 0.05),
    }
    for name in config.runs:
        more, own = scores.trained(name, config.tasks, key)
        rows, checks = rows + more, checks | own
    return rows, judge(*named(checks))


def measure(keys: jax.Array, config: Config) -> dict[str, np.ndarray]:
    """Compare the models with direct formulas [draw, form]."""
    n = config.num_supports
    tasks, w_query, w_key = scores.draw(keys, p=config.num_features, n=n, q=config.num_queries)
    kernel, width = Exponential(TEMPERATURE), config.num_features + 1
    smoother = constructions.nadaraya_watson(kernel, num_features=width)
    solver = constructions.conjugate_gradient(
        kernel, num_features=width, ridge=config.ridge, steps=2 * n, attention="softmax"
    )
    found = scores.outputs(tasks, (w_query, w_key), smoother, solver)
    prediction, solved, logits = map(np.asarray, found)
    forms, opposite = scores.opposite_pairs(w_query[:, INDEFINITE], w_key[:, INDEFINITE], smoother)
    pair = np.linalg.eigvalsh(np.exp(opposite))[:, 0]
    expected = [float(theory.opposite_pair_eigenvalue(form, TEMPERATURE)) for form in forms]
    y = np.asarray(tasks.y)
    x = np.concatenate([tasks.x, tasks.x_query], axis=1)[:, None]
    matrix = np.asarray(w_query).mT @ np.asarray(w_key) / TEMPERATURE
    # the key bias multiplies rows, the query bias columns: if the rows are multiplied by the
    # factors of the columns instead, the softmax is the same
    turned = matrix.copy()
    turned[..., :-1, -1] = matrix[..., -1, :-1]
    own, balanced = (np.exp(x @ each @ x[:, :, :n].mT) for each in (matrix, turned))
    smoothed, smooth = (
        np.einsum("dfqn,dn->dfq", each[:, :, n:], y) / np.sum(each[:, :, n:], axis=-1)
        for each in (own, balanced)
    )
    sigma = np.linalg.eigvalsh(balanced[:, :INDEFINITE, :n])
    square = logits[:, :, :n]
    odd = square - square.mT
    # entry i belongs to the three supports i, i + 1 and i + 2
    cycle = sum(
        np.diagonal(np.roll(odd, (-i, -j), axis=(2, 3)), axis1=2, axis2=3)
        for i, j in ((0, 1), (1, 2), (2, 0))
    )
    alpha = np.linalg.solve(own[:, :, :n] + config.ridge * np.eye(n), y[:, None, :, None])
    exact = (own[:, :, n:] @ alpha)[..., 0]
    size = np.max(np.abs(y), axis=1)[:, None]
    return {
        "head": np.max(np.abs(prediction - smoothed), axis=2) / size,
        "smoother": np.max(np.abs(prediction - smooth), axis=2) / size,
        "change": np.max(np.abs(prediction - prediction[:, [EQUAL]]), axis=2) / size,
        "lowest": sigma[..., 0] / sigma[..., -1],
        "cycle": np.max(np.abs(cycle), axis=2) / np.max(np.abs(square), axis=(2, 3)),
        "solver": np.linalg.norm(solved - exact, axis=2) / np.linalg.norm(exact, axis=2),
        "pair": pair,
        "expected": np.array(expected),
    }


CLAIM = Claim(
    title="attention with unequal W_Q and W_K is a smoother, but its scores are no kernel",
    statement="Attention with queries W_Q x and keys W_K z, W_Q not equal to W_K, is a kernel "
    "smoother: it averages the values with weights proportional to the positive scores s(x, z) = "
    "exp(<W_Q x, W_K z> / temperature).",
    truth="The scores are a positive semi-definite kernel on every set of points if W_Q^T W_K is "
    "symmetric without negative eigenvalues. If it is symmetric with a negative eigenvalue, two "
    "opposite points have a negative eigenvalue. If it is not symmetric, no factors of rows and "
    "columns make the scores symmetric: the smoother exists, but kernel ridge regression does not, "
    "and conjugate gradient fails. A key bias multiplies rows and cancels in the softmax. A query "
    "bias multiplies columns and does not, but the head is the smoother of c(x) k(x, z) c(z), "
    "which is a kernel if k is one. The trained encoders of this library have W_Q^T W_K far "
    "from symmetric. With only the symmetric parts without negative eigenvalues, their loss grows, "
    "but it stays below 5 % of that of predicting 0.",
    source="Tsai et al. 2019, abstract",
    quote="To be more precise, we realize that the attention can be seen as applying kernel "
    "smoother over the inputs with the kernel scores being the similarities between inputs.",
    expected=HOLDS,
    told=FAMILY,
    run=run,
    quick=Config(draws=5, runs=("gp-encoder",), tasks=32),
    plot=Plot(x="layer", y="antisymmetric part / all", by=("run",), logy=False),
)
