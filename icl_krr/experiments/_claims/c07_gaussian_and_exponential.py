"""C7: the Gaussian kernel is the exponential kernel, rescaled."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, Gaussian, Kernel, constructions, predict, solvers, theory
from ...tasks import GaussianProcess, sample
from .claim import HOLDS, THIS_TASK, Checks, Claim, Config, stated
from .measuring import Plot, Rows, every, gap, project, sizes, softmax, tidy

INPUTS, SPHERES = ("sphere", "normal"), np.array([True, False])


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    identity, *gaps = measure(key, SPHERES, jnp.asarray(config.temperatures), config)
    axes = {"draw": range(config.draws), "inputs": INPUTS, "temperature": config.temperatures}
    names = ("gap of the heads", "gap of f*", "gap of the stacks")
    rows = tidy(axes, **dict(zip(names, gaps, strict=True)))
    heads, exact, deep = (gap[:, 0] for gap in gaps)  # on the sphere
    return rows, {
        "largest entry of |G - E K E| <= 1e-12": stated(identity),
        "sphere: gap between the two heads <= 1e-12": heads,
        "sphere: gap between the two f* <= 1e-9, ridges 0.1 e^(1/t) and 0.1": exact,
        "sphere: gap between the two deep stacks (conjugate gradient) <= 1e-5": deep,
        "normal inputs: gap between the two heads >= 0.001": gaps[0][:, 1],
        "normal inputs: gap between the two f* >= 0.001": gaps[1][:, 1],
    }


@every(1, 0, 0)
def measure(key: jax.Array, sphere: jax.Array, temperature: jax.Array, config: Config) -> tuple:
    p, steps = config.num_features, config.steps
    process = GaussianProcess(Exponential(), **sizes(config), num_queries=8)
    task = project(sample(key, process), sphere)
    exponential, gaussian = Exponential(temperature), Gaussian(jnp.sqrt(temperature))
    ridges = 0.1 * jnp.exp(1 / temperature), jnp.asarray(0.1)
    G = gaussian(task.x_query, task.x)
    identity = theory.gaussian_from_exponential(task.x_query, task.x, gaussian.lengthscale)

    def head(kernel: Kernel) -> jax.Array:
        return predict(constructions.nadaraya_watson(kernel, num_features=p), task)

    def stack(kernel: Kernel, ridge: jax.Array) -> jax.Array:
        options = {"ridge": ridge, "steps": steps, "attention": softmax(kernel, task)}
        return predict(constructions.conjugate_gradient(kernel, num_features=p, **options), task)

    def exact(kernel: Kernel, ridge: jax.Array) -> jax.Array:
        return solvers.exact(kernel, task, ridge=ridge).prediction

    pairs = tuple(zip((exponential, gaussian), ridges, strict=True))
    heads = gap(head(exponential), head(gaussian))
    gaps = (gap(*(solve(*pair) for pair in pairs)) for solve in (exact, stack))
    return jnp.max(jnp.abs(identity - G)), heads, *gaps


CLAIM = Claim(
    statement="The Gaussian kernel matrix G with lengthscale sqrt(t) is G = E K E, where K is the "
    "exponential kernel matrix with temperature t and E = diag(exp(-|x_i|^2 / (2 t))).",
    truth="In addition: on a sphere "
    "the two kernels differ by a constant factor, so they give the same predictions if the ridge "
    "is scaled by this factor. On other inputs the predictions differ.",
    source="Choromanski et al. 2021, section 2.3",
    quote="SM(x, y) = exp(||x||^2 / 2) K_gauss(x, y) exp(||y||^2 / 2)",
    expected=HOLDS,
    required_inputs=THIS_TASK,
    run=run,
    config=Config(draws=50, num_supports=32, num_features=3, steps=64),
    axes=Config(temperatures=(0.2, 0.5, 1.0, 2.0, 5.0)),
    quick=Config(draws=5, temperatures=(0.5, 2.0)),
    plot=Plot(x="temperature", y="gap of f*", by=("inputs",), logx=True),
)
