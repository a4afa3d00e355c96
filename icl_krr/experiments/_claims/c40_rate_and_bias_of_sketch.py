"""C40: a sketch adds a bias to the error of conjugate gradient."""

import jax
import jax.numpy as jnp
import numpy as np

from ...kernels import Exponential, Linear
from .._shared.spectra import METRIC, metric, sketch, spectral_task
from .c18_query_error_of_width import width_errors
from .claim import HOLDS, THIS_TASK, Checks, Claim, Config, at_most, nearly
from .measuring import Plot, Rows, every, sizes, tidy

KERNELS = {"linear": Linear(), "exponential": Exponential()}
SKETCHES = ("none", "best", METRIC, "gaussian")


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    results = measure(key, config)  # [draw, kernel, sketch]
    sketched = results.model_gap[:, 0, 1:, config.width + 1]
    rate, cond, steps = results.rate, results.condition, range(config.steps + 1)
    both = results.dual + results.second
    bound = both[..., None, :] + rate[..., None] * results.factor[..., None, :]
    axes = {"draw": range(config.draws), "kernel": KERNELS, "sketch": SKETCHES, "step": steps}
    rows = tidy(axes, error=results.path[..., 0], bound=bound[..., 0], condition=cond[..., None])
    of_alpha = at_most(results.alpha[:, :, 0], rate[:, :, 0], stated=True)
    kappa = nearly(cond[:, 0, 1:3], cond[:, 0, :1])
    return rows, {
        "no sketch: |alpha_t - alpha*|_A / |alpha*|_A <= rate of CG for A": of_alpha,
        "every sketch: |f_t - f*| <= rate of CG for A^ times sqrt(k^^T inv(A^) k^) |alpha^|_A^, "
        "plus the bias": nearly(results.path, bound, stated=True),
        "every sketch: largest |f_t - f*| of the last step over draws, queries and kernels >= "
        "0.02": np.max(results.error[:, :, 1:], axis=(0, 1, 3)),
        "linear kernel, every sketch: |f_t - f^| / |f^| <= 1e-6 after m + 1 steps": sketched,
        "linear kernel, best sketch and best metric: condition number of A^ <= that of A": kappa,
        "Gaussian sketch: largest quotient of the condition numbers of A^ and A over draws >= "
        "1.2": np.max(cond[..., 3] / cond[..., 0], axis=0),
    }


@every()
def measure(key: jax.Array, config: Config) -> dict[str, jax.Array]:
    """Return `width_errors` [draw, kernel, sketch, ...]; the Gaussian P has R = I."""
    at, sketch_key = jax.random.split(key)
    task = spectral_task(at, config.spectrum, **sizes(config))
    x, p, m = task.x, config.num_features, config.width
    P = [sketch(name, sketch_key, x, m) for name in ("best", "orthonormal", "gaussian")]
    R = [*(metric(projection, x) for projection in P[:2]), jnp.eye(p, m)]
    # channels >= m of a sketch are 0, so that one compiled program serves every sketch and none
    padded = (jnp.pad(jnp.stack(part), ((0, 0), (0, 0), (0, p - m))) for part in (P, R))
    pairs = tuple(jnp.concatenate([jnp.eye(p)[None], part]) for part in padded)

    def errors(kernel: Linear | Exponential) -> dict[str, jax.Array]:
        of = lambda P, R: width_errors(kernel, task, P, R, config.ridge, config.steps)  # noqa: E731
        return jax.lax.map(lambda pair: of(*pair), pairs)

    return jax.tree.map(lambda *kernels: jnp.stack(kernels), *map(errors, KERNELS.values()))


CLAIM = Claim(
    statement="After t steps of conjugate gradient (CG), a transformer that multiplies by the "
    "linear or the exponential kernel matrix K has at most the error of the rate of CG for A = K + "
    "ridge I. If it multiplies by the kernel matrix K^ of a sketch, its prediction error |f_t - "
    "f*| is at most that of the rate for A^ = K^ + ridge I, plus a bias that does not depend on t.",
    truth="The source gives no formula; the bias here is the bound |k| |y| |inv(A) - inv(A^)| + "
    "|k - k^| |y| / ridge of C18. More depth does not remove the bias. For the linear kernel the "
    "best sketch, or the best metric for a random one, does not increase the condition number, and "
    "every sketch to m features needs only m + 1 steps. A Gaussian sketch, whose queries and keys "
    "are the channels, can increase the condition number of both kernels.",
    source="Cawley 2025, docs/theory/width_rank.md, implications",
    quote="Depth-accuracy: unchanged from CG rate provided the mat-vec uses K (or K~); with sketch "
    "K^, an additional bias arises from K -> K^ perturbation.",
    expected=HOLDS,
    required_inputs=THIS_TASK,
    run=run,
    config=Config(
        draws=40,
        num_supports=40,
        num_features=16,
        num_queries=4,
        width=5,
        ridge=1.0,
        steps=30,
        spectrum="1/i",
    ),
    quick=Config(draws=15, steps=10),
    plot=Plot(x="step", y="error", by=("kernel", "sketch"), bound="bound"),
)
