"""C33: an attention matrix needs m ~ d log d random features, for bounded R / d^(1/4)."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import Task, predict, theory
from .claim import HOLDS, TASK_FAMILY, Checks, Claim, Config, at_most, stated
from .feature_errors import drawn, largest, scores, sums
from .measuring import Plot, Rows, every, exponent, tidy

SCALINGS = ("R = 2", "R = d^(1/4)", "R = sqrt(d)")
FIXED, BOUNDED, GROWING = range(3)
ERROR = 0.5


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    keys, widths = jax.random.split(key, config.draws), np.array(config.widths)
    frequencies = np.stack([padded(keys, d, config) for d in config.dimensions])
    dims = np.array(config.dimensions, float)
    radii = np.stack([0 * dims + 2, dims**0.25, dims**0.5])
    error, places = map(np.asarray, largest(keys, frequencies, radii, dims, config))
    typical = np.median(error, axis=2)
    # the m with the error `ERROR`, extrapolated from the nearest error as 1 / sqrt(m)
    nearest = np.argmin(np.abs(np.log(typical / ERROR)), axis=-1, keepdims=True)
    needed = np.take_along_axis(widths * (typical / ERROR) ** 2, nearest, axis=-1)[..., 0]
    bound = np.vectorize(theory.performer_width, otypes=[float])(config.dimensions, radii, ERROR)
    off = np.abs(attention(keys, places[BOUNDED, 0, :, -1], config) - error[BOUNDED, 0, :, -1])
    slope = np.mean([[exponent(widths, each) for each in row] for row in typical])
    rows = tidy({"ball": SCALINGS, "d": config.dimensions, "m": widths}, error=typical)
    columns = {"needed m": needed, "m of the theorem": bound}
    rows += tidy({"ball": SCALINGS, "d": config.dimensions}, **columns)
    growth, linear = [exponent(dims, each) for each in needed], dims * np.log(dims)
    relative = needed[GROWING] / linear
    return rows, {
        f"trigonometric features: m that is needed for the error {ERROR} in the ball / "
        "((d / delta^2) log(4 d^(3/4) R / delta)) <= 1, for all d and R": stated(needed / bound),
        f"R = d^(1/4): needed m ~ d^a with a <= that of d log d, d = {dims[0]:g} to "
        f"{dims[-1]:g}": at_most(growth[BOUNDED], exponent(dims, linear), stated=True),
        "linear attention on the features: |its error - error of the features| <= 1e-9": off,
        "largest error in the ball ~ m^a with a in [-0.7, -0.3], mean over d and R": slope,
        "R = 2: needed m ~ d^a with a <= 0": growth[FIXED],
        "R = d^(1/4): needed m ~ d^a with a >= 0.7": growth[BOUNDED],
        "needed m / m of the theorem <= 0.35, for all d and R": needed / bound,
        f"R = sqrt(d): needed m / (d log d) at d = {dims[-1]:g} / at d = {dims[0]:g} >= "
        "10": relative[-1] / relative[0],
    }


@every(static=("d", "config"))
def padded(key: jax.Array, d: int, config: Config) -> jax.Array:
    """Draw frequencies [draw, m, largest d], with zeros after the d-th entry."""
    phi = drawn(key, d, config.widths[-1], "trigonometric")
    return jnp.pad(phi.frequencies, ((0, 0), (0, config.dimensions[-1] - d)))


@every(together=True)
def attention(key: jax.Array, pair: jax.Array, config: Config) -> jax.Array:
    """Return the error of linear attention for the pairs (q, k) at the smallest d [draw]."""
    d = config.dimensions[0]
    q, k = pair[:, None, :d]
    model = sums(drawn(key, d, config.widths[-1], "trigonometric"), num_features=d)
    return jnp.abs(predict(model, Task(x=k, y=jnp.ones(1), x_query=q)) - scores(d)(q, k)[0])[0]


CLAIM = Claim(
    statement="Let all queries and keys have norms of at most R. Trigonometric features with "
    "m = C (d / delta^2) log(4 d^(3/4) R / delta) orthogonal frequencies, delta = epsilon "
    "exp(-R^2 / sqrt(d)), estimate all entries of exp(Q K^T / sqrt(d)) with an error of at most "
    "epsilon, with any constant probability. The number m does not depend on the number of tokens.",
    truth="The bound holds with C = 1 for the largest errors that gradient ascent finds in the "
    "ball. The m that they need is 5 to 26 % of the bound. If R / d^(1/4) is fixed, it grows "
    "about as d. For a fixed R, it does not grow with d. For R = sqrt(d), which is the norm of "
    "vectors with entries of variance 1, the bound grows exponentially in sqrt(d), and the m that "
    "is needed, extrapolated from m = 512, much faster than d log d. So m ~ d log d needs a "
    "bounded R / d^(1/4).",
    source="Choromanski et al. 2021, theorem 4",
    quote="Assume that L2-norms of queries/keys are upper-bounded by R > 0. Define l = R d^(-1/4) "
    "and take h* = exp(l^2 / 2). Then for any e > 0, delta = e / (h*)^2 and the number of random "
    "projections m = Theta((d / delta^2) log(4 d^(3/4) R / delta)) the following holds for the "
    "attention approximation mechanism leveraging estimators SM^trig with ORFs: ||A^ - A||_inf <= "
    "e with any constant probability",
    expected=HOLDS,
    required_inputs=TASK_FAMILY,
    run=run,
    # `widths` are numbers m of frequencies, `starts` and `steps` those of the ascent.
    config=Config(draws=5, starts=16, steps=60),
    axes=Config(dimensions=(4, 8, 16, 32, 64), widths=(64, 128, 256, 512)),
    quick=Config(draws=5, dimensions=(4, 64), widths=(64, 256), starts=4, steps=15),
    plot=Plot(x="d", y="needed m", by=("ball",), bound="m of the theorem", logx=True),
)
