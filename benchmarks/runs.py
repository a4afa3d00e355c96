"""`python -m benchmarks.runs`: evaluate the reference runs on tasks not used in training."""

from typing import Any

from benchmarks import converged
from benchmarks.records import RUNS, folder_of, options
from icl_krr.experiments import RUNS as PACKAGE_RUNS, load, to_markdown


def trained() -> list[str]:
    """The names of the reference runs with weights, of the package and of `benchmarks/runs`."""
    folders = (path.parent for top in (RUNS, PACKAGE_RUNS) for path in top.glob("*/model.msgpack"))
    return sorted(folder.name for folder in folders)


def reached(name: str, run: Any) -> list[str]:
    """The error of exact KRR against the noiseless outputs, and the excess of a run over it."""
    row, sampling = converged.errors(run.model, run.family)
    excess = f"{row['excess']:.3g} ± {sampling:.1g}"
    return [f"`{name}`", str(run.recipe.training.steps), f"{row['exact']:.3g}", excess]


if __name__ == "__main__":
    options(__doc__, quick="")
    runs: dict[str, Any] = {name: load(folder_of(name)) for name in trained()}
    lines = [reached(name, run) for name, run in runs.items() if run.family.optimal()]
    print(f"{converged.VALIDATION} tasks with all supports, float32\n")
    header = ["reference run", "updates", "error of exact KRR", "excess over it (95 %)"]
    print(to_markdown((header, lines)), end="")
