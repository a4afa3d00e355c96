"""C21: linear attention on random features in place of softmax attention."""

from __future__ import annotations

import jax
import numpy as np

from ...kernels import Exponential
from ...tasks import GaussianProcess
from ..shared.draws import draw_tasks, draws
from ..shared.rows import Plot, Rows, tidy
from .claim import FAMILY, HOLDS, Claim, Verdict, at_least, at_most, judge, named, within
from .feature_estimates import KINDS, Config, excess, gap_floor, kernel_entry_errors, negative_share
from .measuring import exponent


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    errors, formula, below, blocks = (
        np.asarray(a) for a in kernel_entry_errors(draws(key, config.draws), config)
    )
    mse, negative = np.mean(errors**2, axis=0), np.mean(below, axis=0)
    # average over the widths, so that there is one test of bias for each kind of features
    pooled = np.mean(errors * np.sqrt(config.widths), axis=-1)
    z = np.mean(pooled, axis=0) / np.std(pooled, axis=0) * np.sqrt(config.draws)
    kernel = Exponential(config.temperature)
    process = GaussianProcess(
        kernel,
        num_features=config.num_features,
        num_supports=config.num_supports,
        num_queries=config.num_queries,
        inputs="sphere",
    )
    tasks = draw_tasks(key, config.tasks, process)
    keys = draws(key, config.tasks)
    gaps = np.array([gap_floor(keys, tasks, kernel, m, config) for m in config.floors])
    rows = tidy(
        {"features": KINDS, "width": config.widths},
        error=np.sqrt(mse),
        expected=np.sqrt(np.mean(formula, axis=0)),
        negative=negative,
    )
    rows += tidy({"features": ["floor of CG"], "width": config.floors}, error=gaps[None])
    plain, orthogonal, waves = range(3)
    ratio = np.mean(mse / np.mean(formula, axis=0), axis=1)
    in_block = np.mean(blocks, axis=0)
    slopes = [exponent(config.widths, np.sqrt(values)) for values in mse]
    outside = np.asarray(excess(keys, tasks, config))
    checks = {
        "no bias: |mean error| / standard error <= 4 (our number)": at_most(
            np.abs(z), 4.0, stated=True
        ),
        "mean squared error / formula of lemma 2 in [0.85, 1.15] (our numbers)": within(
            ratio[[plain, waves]], 0.85, 1.15, stated=True
        ),
        "m = p: mean squared error of orthogonal draws <= that of independent draws": at_most(
            in_block[orthogonal], in_block[plain], stated=True
        ),
        "positive features have weights k^ >= 0: 1 - k^ / k <= 1": at_most(
            -errors[:, :waves], 1.0, stated=True
        ),
        "attention with positive features, normalised: output outside of [min y, "
        "max y] / range of y <= 0": at_most(np.maximum(outside[:, 0], 0), 0.0, stated=True),
        "the same with trigonometric features: share of draws with an output outside of [min y, "
        "max y] >= 0.3 (our number)": at_least(np.mean(outside[:, 1] > 0), 0.3, stated=True),
        "error ~ m^a with a in [-0.6, -0.4]": within(slopes, -0.6, -0.4),
        "every m: mean squared error of orthogonal draws <= that of independent draws": at_most(
            ratio[orthogonal], ratio[plain]
        ),
        "floor of CG on m features ~ m^a with a in [-0.75, -0.25]": within(
            exponent(config.floors, gaps), -0.75, -0.25
        ),
        "linear attention without features: share of negative weights <x, z> is >= 0.3": at_least(
            negative_share(draws(key, config.draws), config), 0.3
        ),
    }
    return rows, judge(*named(checks))


CLAIM = Claim(
    title="random features estimate the softmax kernel",
    statement="Positive random features give an unbiased estimate k^ >= 0 of the softmax kernel. "
    "Their mean squared error, and that of trigonometric features, is known and falls as 1 / m "
    "with the number m of features. Orthogonal draws reduce it for m <= p, where p is the number "
    "of features of x. Attention with positive features returns convex combinations of the values. "
    "With trigonometric features, whose estimates can be negative, it is unstable.",
    truth="In addition: orthogonal draws in blocks of p reduce the error also for m > p. Conjugate "
    "gradient (CG) on m positive features does not reach exact kernel ridge regression: its gap "
    "stops decreasing at a floor, which falls roughly as 1 / sqrt(m). To remove the softmax "
    "without any features changes the kernel: the weights <x, z> can be negative.",
    corrected="ours",
    source="Choromanski et al. 2021, lemmas 1 and 2, theorem 2, section 2.3",
    quote="Consequently, softmax-kernel admits a positive random feature map unbiased "
    "approximation with h(x) = exp(-||x||^2 / 2), l = 1, f_1 = exp and D = N(0, I_d) | "
    "orthogonality provably reduces mean squared error of the estimation with positive random "
    "features for any dimensionality d > 0 | The attention module from (1) constructs for each "
    "token, a convex combination of value-vectors with coefficients given as corresponding "
    "renormalized kernel scores. That is why kernels producing non-negative scores are used. "
    "Applying random feature maps with potentially negative dimension-values (sin/cos) leads to "
    "unstable behaviours",
    expected=HOLDS,
    told=FAMILY,
    run=run,
    config=Config(),
    quick=Config(draws=2048, widths=(16, 32, 64, 128), floors=(16, 256), tasks=8),
    plot=Plot(x="width", y="error", by=("features",), bound="expected", logx=True),
)
