"""Bad input: one sentence with name, value, rule and remedy, before anything is compiled.

A row of test_bad_inputs.txt is a call and how its error begins.
"""

from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import icl_krr as ik
from icl_krr.experiments.ablate.config import AblateConfig
from icl_krr.experiments.depth_config import DepthConfig
from icl_krr.experiments.explorer import ExplorerConfig
from icl_krr.experiments.hyperparameters import FitConfig
from icl_krr.experiments.identify.settings import IdentifyConfig
from icl_krr.experiments.shared.recipe import TaskRecipe
from icl_krr.experiments.sweep.config import SweepConfig
from icl_krr.kernels import LogBilinear
from icl_krr.pytree import checked


class Tensor:
    """What a tensor of another library looks like from outside."""

    dtype, ndim, shape = "torch.float32", 2, (5, 2)

    def __array__(self, dtype=None, copy=None):
        return np.ones(self.shape, dtype or np.float32)


class Attached(Tensor):
    """A tensor that cannot leave its graph."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use detach.")

    def detach(self):
        return Tensor()


class Frame:
    """What a table of pandas with a column of text looks like from outside."""

    columns, shape = ("city",), (5, 1)

    @property
    def iloc(self):
        return np.full(self.shape, "a")

    def __array__(self, dtype=None, copy=None):
        return self.iloc


@checked
class Tilted(LogBilinear):
    """A kernel of one's own whose author forgot the second coefficient."""

    projection: Any = None

    def coefficients(self, dtype):
        return np.ones((), dtype)


@checked
class Pair(LogBilinear):
    """A kernel of one's own with a coefficient for every feature."""

    projection: Any = None

    def coefficients(self, dtype):
        return np.ones(2, dtype), None


def at(array, index, value):
    changed = np.array(array)
    changed[index] = value
    return changed


@cache
def names():
    """What the calls use; models without values, which would take time to compile."""
    x = np.linspace(-1, 1, 10, dtype="f4").reshape(5, 2)
    task = ik.Task(x=x, y=x[:, 0], x_query=x[:3])
    batch = ik.Task(*(np.stack([part] * 4) for part in (x, x[:, 0], x[:3])))
    key = jax.random.wrap_key_data(np.zeros(2, "u4"))
    sizes = {"num_features": 2, "width": 8, "depth": 1, "heads": 1, "activation": "relu"}
    shape_of = lambda build, **options: jax.eval_shape(lambda: build(**options))  # noqa: E731
    drawn, plain = (
        shape_of(ik.init, key=key, architecture=ik.Architecture(**sizes, layer_norm=norm))
        for norm in (True, False)
    )
    model = shape_of(
        ik.constructions.conjugate_gradient,
        **{"kernel": ik.Linear(), "num_features": 2, "ridge": 0.1, "steps": 2},
    )
    average = shape_of(
        ik.constructions.bayesian_average,
        **{"kernel": ik.Linear(), "num_features": 2, "ridges": np.ones(2, "f4"), "steps": 2},
    )
    return {
        **{"ik": ik, "np": np, "nan": np.nan, "inf": np.inf, "at": at},
        **{"Tensor": Tensor, "Attached": Attached, "Frame": Frame},
        **{"Tilted": Tilted, "Pair": Pair, "KEY": key},
        **{"X": x, "Y": x[:, 0], "Q": x[:3], "TASK": task, "BATCH": batch},
        "NARROW": ik.Task(x=x[:, :1], y=x[:, 0], x_query=x[:3, :1]),
        "HATS": np.ones((4, 1, 3, 5), "f4"),
        **{"STREAMS": np.ones((4, 3, 3, 2), "f4"), "RATES": np.ones((4, 3, 3, 2, 5), "f4")},
        "TABLE": ik.tasks.Table(np.ones((6, 2)), np.arange(6.0), ("a", "b"), "c"),
        "PROCESS": ik.tasks.GaussianProcess(ik.Gaussian(), num_supports=5),
        "NYSTROM": ik.Nystrom(x[:2], np.eye(2), np.eye(2), ik.Linear(), 0.1),
        **{"MODEL": model, "AVERAGE": average, "DRAWN": drawn, "T5": ik.export.T5(plain)},
        "HIDDEN": np.zeros((1, 9, 16), "f4"),
        "NORMAL": ik.Predictive(*(np.full((3, 1), value, "f4") for value in (1, 0, 1))),
        **{
            "UNSURE": ik.uncertainty,
            "BUILD": ik.constructions,
            "THEORY": ik.theory,
            "PROBES": ik.probes,
        },
        "TRAINING": ik.training.Training,
        "AblateConfig": AblateConfig,
        **{"DepthConfig": DepthConfig, "ExplorerConfig": ExplorerConfig, "FitConfig": FitConfig},
        **{"IdentifyConfig": IdentifyConfig, "SweepConfig": SweepConfig, "TaskRecipe": TaskRecipe},
    }


def rows():
    """(section, call, kind of error, how its message begins) of every row of the table."""
    section = ""
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines():
        if line.startswith("# "):
            section = line[2:]
        elif line:
            call, _, error = line.rpartition(" => ")
            kind, _, message = error.partition(": ")
            yield section, call, kind, message


TABLE = [*rows()]


def test_the_table_covers_every_room():
    assert len(TABLE) >= 200
    used = " ".join(call for _, call, _, _ in TABLE)
    for room in (
        *("tasks", "solvers", "BUILD", "THEORY", "PROBES", "UNSURE", "sketches", "training"),
    ):
        assert f"{room}." in used
    for room in ("export", "residual", "catalogue", "Config"):
        assert room in used


def test_nothing_is_compiled_before_the_error(programs):
    """Not even what other tests have compiled already."""
    names()
    jax.clear_caches()
    programs.clear()
    refused = 0
    for _, call, _, _ in TABLE:
        try:
            eval(call, dict(names()))
        except (TypeError, ValueError):
            refused += 1
    assert refused == len(TABLE)
    assert programs == []


@pytest.mark.parametrize("section", dict.fromkeys(section for section, *_ in TABLE))
def test_bad_input_is_refused_by_one_sentence(section):
    for own, call, kind, message in TABLE:
        if own == section:
            with pytest.raises((TypeError, ValueError)) as caught:
                eval(call, dict(names()))
            said = str(caught.value)
            assert (type(caught.value).__name__, said[: len(message)]) == (kind, message), call
            assert "\n" not in said, call
            last = caught.traceback[-1]
            assert "icl_krr" in str(last.path), f"{call}: {last}"
            assert str(last.statement).lstrip().startswith("raise "), f"{call}: {last}"
