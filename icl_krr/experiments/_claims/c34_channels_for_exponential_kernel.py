"""C34: p + c channels run CG on the exponential kernel exactly."""

import jax
import jax.numpy as jnp

from ..._core.linalg import eigenvalues
from ...kernels import Exponential
from ...tasks import GaussianProcess, Task
from .c15_channels_needed import checks_of, measure
from .claim import HOLDS, TASK_FAMILY, Checks, Claim, Config, at_most
from .measuring import Plot, Rows, draw_tasks, every, sizes, tidy


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    kernel, p = Exponential(config.temperature), config.num_features
    tasks = draw_tasks(key, config.draws, GaussianProcess(kernel, **sizes(config), inputs="sphere"))
    rank, layouts = ranks(tasks, kernel), [f"CG {form}" for form in config.forms]
    gaps, c, c_of_twice = measure(key, tasks, kernel, layouts, config)
    axes = {"form": config.forms, "draw": range(config.draws), "p - m": (0, 1)}
    rows = tidy(axes, gap=gaps, c=c[:, None, None], rank=rank[None, :, None])
    checks = checks_of(gaps) | {
        "c for 2 p features <= c for p features: c does not grow": at_most(c_of_twice, c),
        "p + c channels < rank of K on the supports": at_most(p + c[None], rank[:, None] - 1),
    }
    return rows, checks


@every(static=())
def ranks(task: Task, kernel: Exponential) -> jax.Array:
    """Return the rank of every kernel matrix, the least number of features that give it."""
    sigma = eigenvalues(kernel(task.x, task.x))
    return jnp.sum(sigma > len(sigma) * jnp.finfo(sigma.dtype).eps * sigma[-1])


CLAIM = Claim(
    statement="Let p be the number of features of x. A transformer with softmax attention and at "
    "least p + c channels runs any number of steps of conjugate gradient on the exponential kernel "
    "exactly, up to rounding. Here c is the number of channels for the state of conjugate "
    "gradient.",
    truth="In each of our constructions c is a constant that does not depend on p. The feature map "
    "of the exponential kernel has infinitely many features, and on n supports its kernel matrix "
    "has the rank n. Fewer than n channels are enough, because the softmax computes the kernel "
    "from inner products of x. With only p - 1 feature channels the steps are not exact.",
    source="Cawley 2025, docs/theory/width_rank.md, setup and theorem",
    quote="[...] with kernel K = Phi Phi^T (or the Route-A exponential kernel K~) [...] If m >= "
    "p + c (channels for CG state), then there exists a parameterization realizing t CG steps on "
    "KRR exactly (up to numeric precision) under the masks described in S5.",
    expected=HOLDS,
    required_inputs=TASK_FAMILY,
    run=run,
    config=Config(draws=20, num_features=4, num_supports=64, temperature=0.25, steps=6, ridge=5.0),
    axes=Config(forms=("textbook", "fused", "pipelined")),
    quick=Config(draws=5, forms=("textbook",)),
    plot=Plot(x="p - m", y="gap", by=("form",)),
)
