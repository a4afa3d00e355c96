"""C21: random features estimate the softmax kernel."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, constructions, predict, solvers, theory
from ...sketches import RandomFeatures, positive_features, trigonometric_features
from ...tasks import GaussianProcess, Task
from .claim import HOLDS, TASK_FAMILY, Checks, Claim, Config, at_most, stated
from .feature_errors import MAPS, block_means, estimates, shares
from .measuring import Plot, Rows, draw_tasks, every, exponent, gap, sizes, tidy

KINDS = ("positive", "positive, orthogonal", "trigonometric")


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    draws = jax.random.split(key, config.draws)
    errors, *others = map(np.asarray, kernel_entry_errors(draws, config))
    mse = np.mean(errors**2, axis=0)
    formula, negative, in_block, unlike = (np.mean(part, axis=0) for part in others)
    # average over the widths, so that there is one test of bias for each kind of features
    pooled = np.mean(errors * np.sqrt(config.widths), axis=-1)
    z = np.mean(pooled, axis=0) / np.std(pooled, axis=0) * np.sqrt(config.draws)
    process = GaussianProcess(Exponential(config.temperature), **sizes(config), inputs="sphere")
    tasks, keys = draw_tasks(key, config.tasks, process), jax.random.split(key, config.tasks)
    gaps = np.array([np.median(gap_floor(keys, tasks, m, config)) for m in config.floors])
    columns = {"error": np.sqrt(mse), "expected": np.sqrt(formula), "negative": negative}
    rows = tidy({"features": KINDS, "width": config.widths}, **columns)
    rows += tidy({"features": ["floor of CG"], "width": config.floors}, error=gaps[None])
    plain, orthogonal, waves = range(3)
    ratio = np.mean(mse / formula, axis=1)
    slopes = [exponent(config.widths, np.sqrt(values)) for values in mse]
    outside = np.asarray(excess(keys, tasks, config))
    by_lemma = stated(ratio[[plain, waves]])
    one_block = at_most(in_block[orthogonal], in_block[plain], stated=True)
    all_blocks = at_most(ratio[orthogonal], ratio[plain])
    return rows, {
        "no bias: |mean error| / standard error <= 4 (our number)": stated(np.abs(z)),
        "mean squared error / formula of lemma 2 in [0.85, 1.15] (our numbers)": by_lemma,
        "m = p: mean squared error of orthogonal draws <= that of independent draws": one_block,
        "positive features have weights k^ >= 0: 1 - k^ / k <= 1": stated(-errors[:, :waves]),
        "attention with positive features, normalised: output outside of [min y, "
        "max y] / range of y <= 0": stated(np.maximum(outside[:, 0], 0)),
        "the same with trigonometric features: share of draws with an output outside of [min y, "
        "max y] >= 0.3 (our number)": stated(np.mean(outside[:, 1] > 0)),
        "error ~ m^a with a in [-0.6, -0.4]": slopes,
        "every m: mean squared error of orthogonal draws <= that of independent draws": all_blocks,
        "floor of CG on m features ~ m^a with a in [-0.75, -0.25]": exponent(config.floors, gaps),
        "linear attention without features: share of negative weights <x, z> is >= 0.3": unlike,
    }


@partial(jax.jit, static_argnames="config")
def kernel_entry_errors(keys: jax.Array, config: Config) -> tuple[jax.Array, ...]:
    """Relative errors [draw, kind, width], their variance by theory, and three arrays.

    Where the estimate is negative, errors of p positive features [draw, kind], where <x, z> < 0.
    """
    kernel, p, most = Exponential(config.temperature), config.num_features, max(config.widths)

    def once(key: jax.Array) -> tuple[jax.Array, ...]:
        at, draw = jax.random.split(key)
        pair = jax.random.normal(at, (2, 1, p))
        x, z = pair / jnp.linalg.norm(pair, axis=-1, keepdims=True)
        options = {"num_features": p, "width": most}
        maps = [positive_features(draw, kernel, orthogonal=on, **options) for on in (False, True)]
        maps.append(trigonometric_features(draw, kernel, **options))
        true = kernel(x, z)[0, 0]
        estimate = jnp.stack([estimates(phi, x, z, config.widths, p)[:, 0, 0] for phi in maps])
        # p features in turn are orthogonal
        blocks = jnp.stack([block_means(phi, x, z, p)[:, 0, 0] for phi in maps[:2]])
        positive, waves = (
            jnp.stack([variance(x[0], z[0], config.temperature, m) for m in config.widths])
            for variance in (theory.positive_variance, theory.trigonometric_variance)
        )
        formula = jnp.stack([positive, positive, waves]) / true**2
        in_block = jnp.mean((blocks / true - 1) ** 2, axis=-1)
        return estimate / true - 1, formula, estimate < 0, in_block, jnp.sum(x * z) < 0

    return jax.lax.map(once, keys, batch_size=128)


@every(together=True)
def excess(key: jax.Array, task: Task, config: Config) -> jax.Array:
    """How far outputs with m = 2 p features leave [min y, max y], over its range [draw, kind]."""
    kernel, p = Exponential(config.low_temperature), config.num_features
    options = {"num_features": p, "width": 2 * p, "orthogonal": False}

    def outside(phi: RandomFeatures) -> jax.Array:
        f, y = shares(phi(task.x_query) @ phi(task.x).T) @ task.y, task.y
        return jnp.max(jnp.maximum(f - jnp.max(y), jnp.min(y) - f)) / jnp.ptp(y)

    return jnp.stack([outside(draw(key, kernel, **options)) for draw in MAPS.values()])


@every(together=True, static=("width", "config"))
def gap_floor(key: jax.Array, task: Task, width: int, config: Config) -> jax.Array:
    """Return the final gap to exact KRR of conjugate gradient on m features [task]."""
    kernel, p = Exponential(config.temperature), config.num_features
    phi = positive_features(key, kernel, num_features=p, width=width)
    options = {"num_features": p, "ridge": config.ridge, "steps": 24, "sketch": phi}
    f = predict(constructions.conjugate_gradient(kernel, **options), task)
    return gap(f, solvers.exact(kernel, task, ridge=config.ridge).prediction)


CLAIM = Claim(
    statement="Positive random features give an unbiased estimate k^ >= 0 of the softmax kernel. "
    "Their mean squared error, and that of trigonometric features, is known and falls as 1 / m "
    "with the number m of features. Orthogonal draws reduce it for m <= p, where p is the number "
    "of features of x. Attention with positive features returns convex combinations of the values. "
    "With trigonometric features, whose estimates can be negative, it is unstable.",
    truth="In addition: orthogonal draws in blocks of p reduce the error also for m > p. Conjugate "
    "gradient (CG) on m positive features does not reach exact kernel ridge regression: its gap "
    "stops decreasing at a floor, which falls roughly as 1 / sqrt(m). To remove the softmax "
    "without any features changes the kernel: the weights <x, z> can be negative.",
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
    required_inputs=TASK_FAMILY,
    run=run,
    # `draws` are of features with a pair of points, `tasks` of each floor of CG.
    config=Config(
        draws=4096,
        num_features=8,
        num_supports=48,
        num_queries=16,
        temperature=2.0,
        ridge=1.0,
        tasks=20,
        low_temperature=0.25,
    ),
    axes=Config(widths=(16, 32, 64, 128, 256, 512), floors=(16, 64, 256, 1024)),
    quick=Config(draws=1024, widths=(16, 32, 64, 128), floors=(16, 256), tasks=4),
    plot=Plot(x="width", y="error", by=("features",), bound="expected", logx=True),
)
