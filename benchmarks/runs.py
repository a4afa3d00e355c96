"""`python -m benchmarks.runs`: evaluate the reference runs on tasks not used in training."""

import jax
import numpy as np

import icl_krr as ik
from benchmarks.records import RUNS, folder_of, options
from icl_krr.experiments import RUNS as PACKAGE_RUNS, load, to_markdown
from icl_krr.tasks import Sampler, Task, sample

CHUNK, TASKS, SEED = 2048, 20480, 77


def trained() -> list[str]:
    """The names of the reference runs with weights, of the package and of `benchmarks/runs`."""
    folders = (path.parent for top in (RUNS, PACKAGE_RUNS) for path in top.glob("*/model.msgpack"))
    return sorted(folder.name for folder in folders)


def has_known_optimum(family: Sampler) -> bool:
    return getattr(family, "optimal", lambda: None)() is not None


def reached(name: str) -> list[str]:
    """Mean squared errors of exact KRR and of a run against the noiseless outputs.

    Their ratio has a 95 % interval over bootstrap resamples of the tasks.
    """
    run, key = load(folder_of(name)), jax.random.key(SEED)
    best = ik.training.reference(run.family, jax.random.fold_in(key, 0))

    def exact(task: Task) -> jax.Array:
        return ik.solvers.exact(best.kernel, task, ridge=best.ridge).prediction

    @jax.jit
    def squares(key: jax.Array) -> jax.Array:
        tasks = jax.lax.map(lambda key: sample(key, run.family), jax.random.split(key, CHUNK))
        answers = ik.predict_batch(run.model, tasks), ik.map_tasks(exact, tasks)
        return jax.numpy.stack([((each - tasks.y_query) ** 2).mean(axis=1) for each in answers])

    each = [squares(jax.random.fold_in(key, 1 + i)) for i in range(TASKS // CHUNK)]
    model, optimal = np.concatenate(each, axis=1).astype(float)
    rng = np.random.default_rng(SEED)
    drawn = (rng.integers(TASKS, size=TASKS) for _ in range(1000))
    low, high = np.quantile([model[at].mean() / optimal[at].mean() for at in drawn], (0.025, 0.975))
    least, loss = optimal.mean(), model.mean()
    ratio = f"{loss / least:.3f} ({low:.3f}, {high:.3f})"
    return [f"`{name}`", f"{least:.3g}", f"{loss:.3g}", ratio]


if __name__ == "__main__":
    options(__doc__, quick="")
    comparable = [name for name in trained() if has_known_optimum(load(folder_of(name)).family)]
    errors = ["reference run", "exact loss", "loss", "ratio (95 %)"]
    print(f"{TASKS} tasks with all supports, seed {SEED}, float32\n")
    print(to_markdown((errors, [reached(name) for name in comparable])), end="")
