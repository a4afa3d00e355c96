"""C6: several heads, and one head at very low and very high temperature."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ... import theory
from ..shared.draws import draws
from ..shared.rows import Plot, Rows, tidy
from .claim import HOLDS, NOTHING, Claim, Verdict, at_least, at_most, judge, named, within
from .limits_of_heads import INPUTS, Config, gap_in_dimensions, logit_variance, measure
from .measuring import exponent, fields


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    keys, temperatures = draws(key, config.draws), jnp.asarray(config.temperatures)
    spheres = jnp.array([name == "sphere" for name in INPUTS])
    found = fields(measure(keys, temperatures, spheres, config))
    ends = np.asarray(jax.vmap(jax.vmap(theory.mean_limit_bound))(found.spread, found.y))
    tops = np.asarray(jax.vmap(jax.vmap(theory.nearest_limit_bound))(found.apart, found.y))
    limits = found.nearest, found.top, np.mean(found.y, axis=2, keepdims=True)
    to_nearest, to_top, to_mean = (abs(found.head - limit[:, :, None]) for limit in limits)
    rows = tidy(
        {"draw": range(config.draws), "inputs": INPUTS, "temperature": config.temperatures},
        **{
            "to the nearest": to_nearest.mean(-1),
            "to the mean": to_mean.mean(-1),
            "bound": ends.mean(-1),
        },
    )
    scale = np.ptp(found.y, axis=2)[:, :, None]
    near, cold = (distance[:, :, 0] / scale for distance in (to_nearest, to_top))
    sphere, normal = range(2)
    wide = np.asarray(gap_in_dimensions(keys, jnp.asarray(config.dimensions), config))
    fall = exponent(config.dimensions, np.median(wide, axis=(0, 2)))
    variance = np.asarray(logit_variance(key, config.num_features))
    checks = {
        "|several heads - mixture of their smoothers| / |mixture| <= 1e-12": at_most(
            found.heads, 1e-12, stated=True
        ),
        "temperature 1e-7: |head - y of the support with the largest score| / range "
        "of y <= 0.01 (our number)": at_most(cold, 0.01, stated=True),
        "temperature 1e4: |head - mean of y| / range of y <= 0.01 (our number)": at_most(
            to_mean[:, :, -1] / scale, 0.01, stated=True
        ),
        "temperature 1, x on the unit sphere in 256 dimensions: |head - mean "
        "of y| / range of y <= 0.02 (our number)": at_most(wide[:, -1], 0.02, stated=True),
        "the same in p dimensions: median "
        "of |head - mean of y| / range of y ~ p^a with a in [-0.7, -0.3]": within(fall, -0.7, -0.3),
        "temperature 1e-7, x on a sphere: "
        "|head - y of the nearest support| / range of y <= 0.01": at_most(near[:, sphere], 0.01),
        "temperature 1e-7, normal x: share of queries with |head - y of the nearest "
        "support| / range of y > 0.01 is >= 0.1": at_least(np.mean(near[:, normal] > 0.01), 0.1),
        "change of the prediction if supports are permuted <= 1e-12": at_most(
            found.permuted, 1e-12
        ),
        "exponential kernel: -(smallest eigenvalue "
        "of K) / (largest eigenvalue of K) <= 1e-12": at_most(found.negative, 1e-12),
        "|head - y of the largest logit| <= (range of y) m / (1 + m), "
        "m = (n - 1) exp(second largest logit - largest logit)": at_most(to_top, tops, slack=1e-6),
        "|head - mean of y| <= (range of y) tanh((range of the logits) / 4)": at_most(
            to_mean, ends, slack=1e-6
        ),
        "variance of <x, z> / sqrt(p) within [0.95, 1.05], features of unit variance": within(
            variance, 0.95, 1.05
        ),
    }
    return rows, judge(*named(checks))


CLAIM = Claim(
    title="several heads are an ensemble of smoothers, with two limits",
    statement="Multi-head softmax attention is an ensemble of Nadaraya-Watson estimators, one per "
    "head, each in its own projection of the inputs. At a low temperature a head returns the "
    "output of one support. At a high temperature, or if the inner products of the inputs "
    "concentrate around 0, as in high dimensions, it returns the mean of the outputs.",
    truth="In addition: the one support is the support with the largest score, here the largest "
    "inner product. It is the nearest support for inputs on a sphere, but often another one for "
    "normal inputs. At every temperature there is a proven bound on the distance of the head to "
    "each of the two limits. On a sphere in p dimensions, the distance to the mean falls as "
    "1 / sqrt(p).",
    corrected="ours",
    source="Fokoue 2026, abstract; Cawley 2025, paper/workshop_paper.md, section 4",
    quote="we prove that MHA is a structured ensemble of H NW estimators, each operating in a "
    "distinct learned projection subspace of the key space. | Low temp (tau=0.05) ... 1-NN "
    "collapse | In high dimensions, inner products <x_i, x_j> concentrate around 0 for random "
    "features. Then exp(0/tau) = 1 for all pairs, and softmax weights become uniform: w_i ~ 1/n. "
    "The prediction collapses to y-bar",
    expected=HOLDS,
    told=NOTHING,
    run=run,
    config=Config(),
    quick=Config(draws=5, temperatures=(1e-7, 1.0, 1e4)),
    plot=Plot(x="temperature", y="to the mean", by=("inputs",), bound="bound", logx=True),
)
