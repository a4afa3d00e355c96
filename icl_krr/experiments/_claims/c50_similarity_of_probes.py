"""C50: linear probes show whose iterates a model holds."""

from functools import partial
from itertools import product
from typing import Any

import jax
import numpy as np

from ... import Linear, constructions
from ...probes import streams
from ...tasks import LinearRegression
from .._shared.draws import draw_tasks
from ..identify import _probe_similarity as probing
from ..solverbench._settings import largest_eigenvalues
from .claim import CORRECTED, TASK_FAMILY, Checks, Claim, Config, check, stated
from .measuring import Plot, Rows

KERNEL = Linear()
QUERY, SUPPORT = "query", "support"
INPUTS = "the inputs alone"
GRADIENT, CONJUGATE = "gradient_descent", "conjugate_gradient"


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    """Decode the iterates of solvers from constructions, and from the inputs without a model."""
    sizes: Any = {"num_features": config.num_features, "num_supports": config.num_supports}
    tasks = draw_tasks(key, config.tasks, LinearRegression(noise=config.noise, **sizes))
    tasks = tasks.replace(y_query=None)
    targets = probing.iterates(KERNEL, config.ridge, tasks, config.layers)
    highest = config.ridge + float(max(largest_eigenvalues(KERNEL, tasks)))
    keywords: Any = {"num_features": config.num_features, "ridge": config.ridge}
    keywords |= {"steps": config.layers}
    readers: dict[str, Any] = {INPUTS: partial(probing.inputs_of, layers=config.layers)}
    for name in config.solvers:
        spectrum: Any = {} if name == CONJUGATE else {"spectrum": (config.ridge, highest)}
        model = getattr(constructions, name)(KERNEL, **keywords, **spectrum)
        readers[name] = partial(streams, model)
    rows = []
    for name, role in product(readers, (QUERY, SUPPORT)):
        channels = probing.channels_of(readers[name], role, tasks)
        rows += rows_of(name, role, np.asarray(channels), targets)
    return rows, checks(rows, config.solvers)


def rows_of(model: str, role: str, channels: np.ndarray, targets: Any) -> Rows:
    """The similarities to each solver, in the mean and layer by layer."""
    found = probing.similarities(channels, targets)
    about = {"read from": model, "token": role}
    means = {f"to {name}": one.mean for name, one in found.items()}
    rows: Rows = [about | {"named": max(found, key=lambda name: found[name].mean), **means}]
    for name, one in found.items():
        layers = enumerate(one.layers, 1)
        rows += [about | {"layer": at, "of": name, "cosine": float(c)} for at, c in layers]
    return rows


def checks(rows: Rows, solvers: tuple[str, ...]) -> dict[str, Any]:
    means = {(row["read from"], row["token"]): row for row in rows if "named" in row}

    def right(token: str) -> float:
        return float(np.mean([means[name, token]["named"] == name for name in solvers]))

    inputs, own = means[INPUTS, QUERY], "the token of each support, and its own alpha"
    descent, conjugate = (inputs[f"to {name}"] for name in (GRADIENT, CONJUGATE))
    ours = max(abs(means[name, QUERY][f"to {of}"]) for name, of in product(solvers, solvers))
    named = "share of models whose solver has the largest similarity >= 0.9"
    return {
        f"token of the query: {named}": stated(right(QUERY)),
        f"token of each support, its own alpha: {named}": check(right(SUPPORT), reading=own),
        "constructions, token of the query: largest similarity <= 0.1": ours,
        "no model, inputs: similarity to gradient descent >= 0.298 (of the source)": descent,
        "no model, inputs: similarity to conjugate gradient >= 0.184 (of the source)": conjugate,
        "no model, inputs: difference of both >= 0.114": descent - conjugate,
    }


CLAIM = Claim(
    statement="A linear probe of every layer of a model, at its last token, tells whose iterates "
    "the model holds: those of the solver whose alpha it decodes best, by the cosine. (The source "
    "says so of a trained decoder. We test it on models whose solver is known, with its sizes: 10 "
    "features, 20 supports, 12 layers, 400 tasks to fit and 100 to score, ridge 0.1.)",
    truth="At the token of the query, the constructions hold nothing of alpha: similarities are at "
    "most 0.05, and 12 of 30 names are right with ten seeds. At the token of each support, which "
    "holds its own alpha, 30 of 30 are: the similarity is 0.97 to 1 to the solver that runs, and "
    "0.96 or less to others. And without any model, a linear probe of the x and y of a task has "
    "the similarity 0.56 to 0.60 to gradient descent and 0.23 to 0.27 to conjugate gradient, more "
    "than the decoder of the source. The alpha of gradient descent stays near a multiple of y, "
    "which such a probe reads at once. So a larger similarity to gradient descent does not show "
    "that a model is like it.",
    source="Cawley 2026, probing",
    quote="On isotropic training, the result is that the model's internal representations are more "
    "GD-like than CG-like. The mean CG probe similarity is 0.184; the mean GD probe similarity is "
    "0.298.",
    expected=CORRECTED,
    required_inputs=TASK_FAMILY,
    run=run,
    config=Config(tasks=500, num_features=10, num_supports=20, noise=0.01, ridge=0.1, layers=12),
    axes=Config(solvers=probing.KERNEL_SOLVERS),
    quick=Config(tasks=200, layers=6, solvers=(GRADIENT, CONJUGATE)),
    plot=Plot(x="layer", y="cosine", by=("read from", "of")),
)
