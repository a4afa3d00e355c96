"""C47: attention weights from random features, and how many a model of equal quality needs."""

from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, solvers
from ...kernels import Exponential, Features
from ...sketches import RandomFeatures
from ...tasks import GaussianProcess, Task
from ...transformer import predict
from .claim import CORRECTED, FAMILY, Claim, Verdict, at_least, at_most, judge, named, within
from .feature_errors import MAPS, distance, estimates, shares, sums
from .measuring import Plot, Rows, draw_tasks, every, exponent, first_below, gap, sizes, tidy

KINDS, DRAWS = tuple(MAPS), ("independent", "orthogonal")
MODELS = ("one head", "ridge regression")
# of the kernel on the unit sphere. With scores over sqrt(p), the same weights have queries and
# keys of norm p^(1/4), sqrt(2) p^(1/4) and 2 p^(1/4), which is sqrt(p) for p = 16
TEMPERATURES = (1.0, 0.5, 0.25)
WARM, COLD = 0, 2
CLOSE = 1.05


class Config(NamedTuple):
    """Settings: numbers p of features of x, and numbers m of random features."""

    tasks: int = 24
    p: tuple[int, ...] = (4, 16)
    num_supports: int = 64
    num_queries: int = 32
    widths: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048)


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    keys, widths, found = jax.random.split(key, config.tasks), np.array(config.widths), []
    for p, temperature in product(config.p, TEMPERATURES):
        tasks = draw_tasks(key, config.tasks, family(p, temperature, config))
        found += [measure(keys, tasks, temperature, p, kind, config) for kind in KINDS]
    shape = len(config.p), len(TEMPERATURES), len(KINDS), config.tasks
    # medians over the tasks [p, temperature, kind, draw, width]
    apart, entries, *ratios = (
        np.median(np.reshape(part, (*shape, *part[0].shape[1:])), axis=3)
        for part in zip(*found, strict=True)
    )
    # twice the largest m, if that is not enough
    enough = np.append(widths, 2 * widths[-1])[first_below(np.stack(ratios), CLOSE)]
    axes = {"p": config.p, "temperature": TEMPERATURES, "features": KINDS, "frequencies": DRAWS}
    rows = tidy(axes | {"m": config.widths}, distance=apart, **{"error of entries": entries})
    rows += tidy({"model": MODELS} | axes, **{"m for 5 %": enough})
    mean = lambda part: np.exp(np.mean(np.log(part), axis=-1))  # noqa: E731
    orthogonal = mean(apart[:, :, :, 1] / apart[:, :, :, 0])  # [p, temperature, kind]
    positive = apart[-1, :, 0] / apart[-1, :, 1]  # [temperature, draw, width]
    head, solver = enough
    checks = {
        "norm p^(1/4): distance of orthogonal / of independent frequencies, mean over m, <= 1": (
            at_most(orthogonal[:, WARM], 1.0, stated=True)
        ),
        "p = 16, norm p^(1/4): distance of positive / of trigonometric features, every m, "
        "<= 1": at_most(positive[WARM], 1.0, stated=True),
        "p = 16, norm sqrt(p): the same <= 1": at_most(
            positive[COLD], 1.0, reading="norm sqrt(p) at p = 16"
        ),
        "p = 16, norm sqrt(p): distance of orthogonal / of independent frequencies in [0.7, "
        "1.3]": within(orthogonal[-1, COLD], 0.7, 1.3),
        "norm p^(1/4): distance ~ m^a with a in [-0.6, -0.4]": within(
            exponent(widths, mean(apart[:, WARM].reshape(-1, len(widths)).T)), -0.6, -0.4
        ),
        "distance / root mean squared relative error of the entries <= 0.8": at_most(
            apart / entries, 0.8
        ),
        "norm p^(1/4): m of ridge regression / m of one head, for a risk within 5 %, >= 4": (
            at_least(solver[:, WARM] / head[:, WARM], 4.0)
        ),
        f"m of ridge regression on n = {config.num_supports} supports / n >= 2": at_least(
            solver / config.num_supports, 2.0
        ),
        "p = 4, positive features: m of one head at temperature 1/4 / at 1 >= 8": at_least(
            head[0, COLD, 0] / head[0, WARM, 0], 8.0
        ),
        "linear attention on the features: gaps of its head and of conjugate gradient to the same "
        "by algebra <= 1e-6": at_most(literal(keys[:2], config), 1e-6),
    }
    return rows, judge(*named(checks))


def family(p: int, temperature: float | jax.Array, config: Config) -> GaussianProcess:
    """Gaussian processes. The variance of the noise, also the ridge, is a tenth of k(x, x)."""
    kernel, noise = Exponential(temperature), 0.1 * jnp.exp(1 / jnp.asarray(temperature))
    return GaussianProcess(kernel, noise, num_features=p, inputs="sphere", **sizes(config))


@every(together=True, static=("p", "kind", "config"))
def measure(
    key: jax.Array, task: Task, temperature: jax.Array, p: int, kind: str, config: Config
) -> tuple[jax.Array, ...]:
    """Return errors of weights and of entries, and quotients of risks of `MODELS` [draw, width].

    The errors are the mean total-variation distance of the weights of a query, and the root of the
    mean squared relative error of the kernel. A quotient has the risk with the features over the
    risk with the kernel.
    """
    process = family(p, temperature, config)
    kernel, ridge = process.kernel, process.noise
    exact = kernel(task.x_query, task.x), kernel(task.x, task.x)

    def risks(cross: jax.Array, gram: jax.Array) -> jax.Array:
        alpha = jnp.linalg.solve(gram + ridge * jnp.eye(len(gram)), task.y)
        both = jnp.stack([shares(cross) @ task.y, cross @ alpha])
        return jnp.mean((both - task.y_query[None]) ** 2, axis=1)

    def errors(phi: RandomFeatures) -> tuple[jax.Array, ...]:
        cross, gram = (
            estimates(phi, points, task.x, config.widths, 16) for points in (task.x_query, task.x)
        )
        relative = jnp.sqrt(jnp.mean((cross / exact[0][None] - 1) ** 2, axis=(1, 2)))
        head, solver = (jax.vmap(risks)(cross, gram) / risks(*exact)[None]).T
        return distance(cross, exact[0][None]), relative, head, solver

    options = {"num_features": p, "width": config.widths[-1]}
    maps = [MAPS[kind](key, kernel, orthogonal=each, **options) for each in (False, True)]
    return jax.vmap(errors)(jax.tree.map(lambda *leaves: jnp.stack(leaves), *maps))


@every()
def literal(key: jax.Array, config: Config) -> jax.Array:
    """Return the gaps of two models of linear attention to what the features give, by algebra."""
    p = config.p[-1]
    process = family(p, TEMPERATURES[COLD], config)
    task, kernel, ridge = process.sample(key), process.kernel, process.noise
    phi = MAPS["positive"](key, kernel, num_features=p, width=config.widths[0])
    both = jnp.stack([task.y, jnp.ones(config.num_supports)], axis=1)
    f, ones = predict(sums(phi, num_features=p), task.replace(y=both, y_query=None)).T
    head = shares(phi(task.x_query) @ phi(task.x).T) @ task.y
    options = {"num_features": p, "ridge": ridge, "steps": 48, "sketch": phi}
    solver = constructions.conjugate_gradient(kernel, **options)
    exact = solvers.exact(Features(phi), task, ridge=ridge).prediction
    return jnp.stack([gap(f / ones, head), gap(predict(solver, task), exact)])


CLAIM = Claim(
    title="orthogonal and positive random features give better attention weights",
    statement="Random features phi give each query x the attention weights phi(x)^T phi(x_j) / "
    "sum_l phi(x)^T phi(x_l). Their total-variation distance to the softmax weights is smaller for "
    "orthogonal than for independent frequencies, and smaller for positive than for trigonometric "
    "features of the same number m.",
    truth="The sentences hold for different norms R of queries and keys. Positive features are "
    "better for R = sqrt(p) at p = 16, the norm of inputs with variance 1. Orthogonal frequencies "
    "make no clear difference there. They are better for R = p^(1/4), and so are trigonometric "
    "features. A head needs few features for a risk within 5 % of the exact head. Ridge regression "
    "needs at least 4 times as many for R = p^(1/4), and always at least twice as many features as "
    "supports (n = 64): then linear attention is no cheaper. m grows steeply for lower "
    "temperatures.",
    source="Choromanski et al. 2021, section 4.2",
    quote="We further examined the approximation error via FAVOR+ in Fig. 4. We demonstrate that "
    "1. Orthogonal features produce lower error than unstructured (IID) features, 2. Positive "
    "features produce lower error than trigonometric sin/cos features. [...] MSE of the "
    "approximation output when comparing Orthogonal vs IID features and trigonometric sin/cos vs "
    "positive features. We took L=4096, d=16, and varied the number of random samples m.",
    expected=CORRECTED,
    told=FAMILY,
    run=run,
    quick=Config(tasks=16, num_queries=16, widths=(32, 128, 512, 2048)),
    plot=Plot(x="m", y="distance", by=("p", "temperature", "features", "frequencies"), logx=True),
)
