"""`python -m benchmarks.bad_inputs`: call functions and commands with bad input and count.

Every argument of every public function gets every bad value of its kind, one at a time; the other
arguments are good. Then commands get the bad files, folders and words of `benchmarks.bad_files`.
The result is one of three:

- refused: one sentence of ours that names the argument; from a command, with the exit status 2;
- foreign: any other exception, such as a message of JAX about a concatenation;
- accepted: the call returned, or the command ran for more than 60 seconds.

A value that is bad for most functions may be good for one, so an accepted value is not always a
defect: the JSON file lists all of them.
"""

from __future__ import annotations

import argparse
import inspect
import io
import re
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import icl_krr as ik
from icl_krr.cli import program
from icl_krr.experiments.depth_config import DepthConfig
from icl_krr.experiments.explorer import ExplorerConfig
from icl_krr.experiments.hyperparameters import FitConfig
from icl_krr.experiments.sweep.config import SweepConfig
from icl_krr.tasks import Task

from . import records
from .bad_files import PARTS, Command, writer

ROOT = Path(ik.__file__).parent
ROOMS = (
    *("icl_krr", "tasks", "kernels", "solvers", "constructions", "theory", "probes", "sketches"),
    *("training", "export", "residual", "transformer", "catalogue", "experiments"),
)
CONFIGS = (DepthConfig, ExplorerConfig, FitConfig, SweepConfig)


class Tensor:
    """What a tensor of another library looks like: it converts to NumPy and is no JAX array."""

    dtype, ndim, shape = "torch.float32", 2, (5, 2)

    def __array__(self, dtype=None, copy=None):
        return np.ones(self.shape, dtype or np.float32)


def array(*shape: int, seed: int = 0) -> jax.Array:
    values = np.random.default_rng(seed).uniform(0.2, 1.0, shape)
    return jnp.asarray(np.sort(values, axis=None)[::-1].reshape(shape).astype("f4"))


@cache
def models() -> tuple[Any, Any]:
    """A construction and a model with random weights."""
    spec = ik.Architecture(num_features=2, width=4, depth=2, heads=1, hidden=4)
    built = ik.constructions.gradient_descent(
        ik.Linear(), num_features=2, ridge=0.5, steps=2, step_size=0.1
    )
    return built, ik.init(jax.random.key(0), spec)


TASK = Task(x=array(5, 2), y=array(5), x_query=array(3, 2, seed=1))
TASKS = jax.tree.map(lambda leaf: jnp.asarray(np.stack([leaf] * 4)), TASK)
TASKS = TASKS.replace(y_query=array(4, 3))

TEXT = {"None": None, "'abc'": "abc", "{}": {}, "object": object()}
SCALAR = {
    **TEXT,
    **{"[1, 2]": [1.0, 2.0], "array [2]": array(2), "nan": np.nan, "inf": np.inf, "1j": 1j},
    **{"True": True, "tensor": Tensor(), "-inf": -np.inf},
}
NUMBER = {**SCALAR, "-1": -1.0}
COUNT = {**TEXT, "2.5": 2.5, "True": True, "-1": -1, "nan": np.nan, "[3]": [3], "'3'": "3"}


def of_array(good: Any) -> dict[str, Any]:
    whole = np.asarray(good)
    broken = whole.copy().astype("f4")
    broken.flat[0] = np.nan
    return {
        **TEXT,
        "list": whole.tolist(),
        "tensor": Tensor(),
        "integers": jnp.asarray(np.ones(whole.shape, int)),
        "booleans": jnp.asarray(np.ones(whole.shape, bool)),
        "complex": jnp.asarray(whole.astype("c8")),
        "strings": np.full(whole.shape, "a"),
        "nan": jnp.asarray(broken),
        "rank + 1": jnp.asarray(whole[None]),
        "scalar": jnp.asarray(np.float32(1)),
        "empty": jnp.asarray(np.zeros((0,) * max(1, whole.ndim), "f4")),
        "longer": jnp.asarray(np.concatenate([whole] * 2, -1)) if whole.ndim else array(2),
    }


KINDS: dict[str, dict[str, Any]] = {
    "positive": {**NUMBER, "0": 0.0, "1e-60": 1e-60, "1e60": 1e60},
    "nonnegative": NUMBER,
    "number": SCALAR,
    "count": {**COUNT, "0": 0},
    "count from 0": COUNT,
    "kernel": {**TEXT, "class": ik.Linear, "'linear'": "linear", "3": 3},
    "task": {**TEXT, "array": array(5, 2), "tuple": (array(5, 2), array(5)), "batch": TASKS},
    "tasks": {**TEXT, "array": array(5, 2), "one task": TASK},
    "model": {**TEXT, "task": TASK, "weights": {"w": array(2)}},
    "key": {**TEXT, "0": 0, "0.5": 0.5, "floats": array(2), "list": [0, 1]},
    "spectrum": {
        **{"None": None, "'ab'": "ab", "3": 3.0, "one": (1.0,), "three": (1.0, 2.0, 3.0)},
        **{"texts": ("a", "b"), "reversed": (2.0, 1.0), "zero": (0.0, 1.0)},
        **{"nan": (np.nan, 1.0), "inf": (1.0, np.inf), "arrays": (array(2), array(2))},
    },
    "choice": {"'abc'": "abc", "3": 3, "''": "", "['a']": ["a"], "object": object()},
    "dtype": {"'float33'": "float33", "'int32'": "int32", "int": int, "5": 5, "f8": "float64"},
    "flag": {"'yes'": "yes", "2": 2, "1.5": 1.5, "object": object()},
    "function": {**TEXT, "3": 3, "array": array(2)},
    "names": {"'abc'": "abc", "3": 3, "(3,)": (3,), "('abc',)": ("abc",)},
    "path": {"None": None, "3": 3, "missing": "/nowhere/at all", "null": "a\0b"},
    "row": TEXT | {"3": 3},
}


class Argument(NamedTuple):
    kind: str
    good: Any


def positive(good: float = 0.5) -> Argument:
    return Argument("positive", good)


def count(good: int = 2) -> Argument:
    return Argument("count", good)


def points(*shape: int, seed: int = 0) -> Argument:
    return Argument("array", array(*shape, seed=seed))


PROCESS = ik.tasks.GaussianProcess(ik.Exponential(1.0), num_supports=5)
KEY = jax.random.key(0)


def layer_answers(task: Task) -> jax.Array:
    return jnp.stack([task.x_query @ (task.x.T @ task.y)] * 2)


@cache
def by_name() -> dict[str, Argument]:
    """The kind of an argument and a good value, by its name."""
    built, drawn = models()
    positives = "ridge sink temperature lengthscale epsilon low error margin frequency"
    counts = "steps num_features num_supports num_queries num_outputs depth hidden width rank heads"
    return {
        **{name: positive() for name in positives.split()},
        **{name: count() for name in counts.split()},
        **{
            name: Argument("choice", None) for name in ["form", "inputs", "attention", "activation"]
        },
        **{
            name: Argument("choice", None)
            for name in ["tokens", "kind", "method", "loss", "target"]
        },
        **{name: Argument("flag", False) for name in ["symmetric", "causal", "everything", "tied"]},
        **{name: Argument("flag", False) for name in ["gradient", "orthogonal", "each_step"]},
        **{name: Argument("flag", False) for name in ["each_unit", "layer_norm"]},
        "a": positive(),
        "b": positive(),
        "bins": count(),
        "block": Argument("count from 0", 0),
        "bound": positive(),
        "chunk": count(),
        "condition": Argument("positive", 2.0),
        "config": Argument("row", PROCESS),
        "cross": points(3, 5),
        "curvature": Argument("nonnegative", 0.1),
        "dtype": Argument("dtype", "float32"),
        "embedding": Argument("row", {"r": ik.Read({"y": jnp.asarray(1.0)}, 1)}),
        "error": positive(0.1),
        "family": Argument("row", PROCESS),
        "high": positive(2.0),
        "hooks": Argument("row", {}),
        "key": Argument("key", KEY),
        "kernel": Argument("kernel", ik.Exponential(1.0)),
        "landmarks": points(3, 2),
        "layer_answers": Argument("function", layer_answers),
        "log_normaliser": Argument("array", array(3)),
        "log_sink": Argument("number", 0.0),
        "logit_bound": positive(),
        "model": Argument("model", drawn),
        "noise": Argument("nonnegative", 0.1),
        "names": Argument("names", ()),
        "points": Argument("names", ()),
        "preconditioner": Argument("choice", "jacobi"),
        "projection": points(2, 2),
        "sigma": points(4),
        "seed": Argument("count from 0", 0),
        "sketch": points(2, 1),
        "spectrum": Argument("spectrum", (0.5, 3.0)),
        "spread": Argument("positive", 1.0),
        "step": Argument("count from 0", 0),
        "step_size": positive(0.1),
        "momentum": Argument("nonnegative", 0.1),
        "system": Argument("function", lambda: (ik.Linear(), 0.5)),
        "task": Argument("task", TASK),
        "tasks": Argument("tasks", TASKS),
        "fitted": Argument("tasks", TASKS),
        "scored": Argument("tasks", TASKS),
        "temperature": positive(1.0),
        "x": points(5, 2),
        "x_query": points(3, 2, seed=1),
        "y": points(5),
        "z": points(3, 2, seed=1),
        "start": Argument("model", drawn),
        "other": Argument("model", built),
        "values": points(5, 1),
        "path": Argument("path", ROOT / "tasks" / "data" / "diabetes.csv"),
        "folder": Argument("path", Path(tempfile.gettempdir()) / "icl_krr-bad-inputs"),
    }


def linear(values: dict[str, Any]) -> dict[str, Argument]:
    return {name: Argument("kernel", ik.Linear()) for name in ("kernel",)} | values


@cache
def overrides() -> dict[str, dict[str, Any]]:
    """Arguments that mean something else in one function, by "room.function"."""
    built, drawn = models()
    some = ik.probes.sites(drawn)[:1]
    model = {"model": Argument("model", built)}
    fit = ik.probes.CandidateFit("gradient_descent", "linear", {"step_size": 0.1}, (1, 2), 0.0)
    unsure = ik.init(KEY, ik.Architecture(num_features=2, width=4, depth=2, heads=1, variance=True))
    featured = linear({"attention": Argument("choice", "linear")})
    table = ik.tasks.Table(np.ones((6, 2)), np.arange(6.0), ("a", "b"), "c")
    return {
        **dict.fromkeys(
            ("prefix_chebyshev", "prefix_conjugate_gradient", "prefix_posterior", "prefix_sums"),
            linear({}),
        ),
        "design": {"first": Argument("row", fit), "second": Argument("row", fit)},
        "separation": {"first": Argument("row", fit), "second": Argument("row", fit)},
        "bayesian_average": linear({"ridges": points(2), "steps": count()}),
        "batch": {"tasks": Argument("row", [by_name()["task"].good])},
        "battery": {"name": Argument("choice", "more-supports")},
        "compare_variances": {"model": Argument("model", unsure)},
        "identify_arrays": {"answers": points(4, 3, 3), "hats": points(4, 3, 3, 5)}
        | dict.fromkeys(("streams", "control_streams"), points(4, 3, 3, 2))
        | dict.fromkeys(("stream_jacobians", "control_jacobians"), points(4, 3, 3, 2, 5)),
        "identify_streams": {
            "reader": Argument("function", lambda task: layer_answers(task)[..., None])
        },
        "lost_share_bound": {"dimension": positive(3.0), "width": positive(2.0)},
        "negative_log_likelihood": {"build": Argument("function", lambda p: built)},
        "opposite_pair_eigenvalue": {"form": points(3, 3)},
        "performer_width": {"dimension": count(), "radius": positive(1.0)},
        "preconditioned_chebyshev": {"kernel": Argument("kernel", ik.Gaussian())},
        "prefixes": {"positions": Argument("row", (2, 3))},
        "read_filter": {"answers": points(4, 2, 3)},
        "read_queries": {"table": Argument("row", ik.tasks.diabetes())},
        "relative_inverse_error_angle": {"sine": positive(0.5)},
        "round_slots": {"formats": Argument("row", {})},
        "smoothing_variance": {
            "bandwidth": positive(),
            "dimension": count(),
            "density": positive(1.0),
        },
        "torch_arrays": {"function": Argument("function", lambda x, y, x_query: x_query)},
        "Mixture": {
            "kernels": Argument("row", (ik.Exponential(1.0), ik.Gaussian(1.0))),
            "weights": points(2),
        },
        "Features": {"map": Argument("function", lambda x: x)},
        "Slot": {"name": Argument("row", "alpha"), "width": count()},
        "Layout": {"slots": Argument("row", (ik.Slot("a", 1),))},
        "Task": {"mask": Argument("array", jnp.asarray([True] * 5)), "y_query": points(3)},
        "init": {"architecture": Argument("row", ik.Architecture(num_features=2))},
        "map_tasks": {"function": Argument("function", lambda task: task.x)},
        "nystrom": {"rank": count()},
        "operand_bounds": model,
        "posterior": model | {"kernel": Argument("kernel", ik.Linear())},
        "resume": {"stream": Argument("row", {"stream": array(9, 4), "one": array(9, 1)})},
        "transplant": {"slots": Argument("row", {}), "block": Argument("count from 0", 0)},
        "untie": model,
        "split": {"table": Argument("row", table), "num_supports": count(3)},
        "read_table": {"target": Argument("choice", "progression")},
        "Rows": {"x": points(9, 2), "y": points(9)},
        "LinearRegression": {"spectrum": points(8), "sparsity": count()},
        "energy_norm": {"matrix": points(3, 3), "error": points(3)},
        "emulated_product": {"scores": points(4, 5)},
        "mean_limit_bound": {"spread": Argument("positive", 0.1), "values": points(5)},
        "nearest_limit_bound": {"gap": Argument("positive", 0.1), "values": points(5)},
        "logit_perturbation": {"logits": points(3, 5), "sketched": points(3, 5)},
        "prediction_bound": {"alpha": points(5)},
        "expected_gap": {"signal": positive(), "noise": positive()},
        "query_error_dual": {"inverse_error": positive()},
        "query_error_features": {"cross_gap": points(3, 5)},
        "inverse_error_bound": {"error": positive()},
        "drift": {"model": Argument("model", built), "start": Argument("model", built)},
        "logit_variance": {"x": points(3, 3), "z": points(3, 3)},
        "neumann_factor": {"sigma": positive()},
        "rank_correlation": {"a": points(5), "b": points(5)},
        "preconditioned_eigenvalues": {"sink": positive()},
        "gradient_descent_plus_plus": featured,
        "newton_schulz": featured,
        "gradient_descent_in_alpha": featured,
        "check": {
            "kernel": Argument("kernel", ik.Linear()),
            "ridge": positive(),
            "settings": Argument("row", ik.training.Training(steps=1)),
        },
        "align": {"cost": points(3, 4)},
        "effective": {
            "kind": Argument("choice", "regression"),
            "kernel": Argument("choice", "gaussian"),
            "hats": points(4, 3, 5),
        },
        "spectral_filter": {"hats": points(4, 1, 3, 5), "edges": points(3)},
        "fit_candidate": {
            "candidate": Argument("choice", "gradient_descent"),
            "kernel": Argument("choice", "linear"),
            "answers": points(4, 2, 3),
        },
        "sites": {"kinds": Argument("names", ("head",))},
        "ablate": {"sites": Argument("row", some), "replace": Argument("choice", "zero")},
        "patch": {"sites": Argument("row", some), "source": Argument("tasks", TASKS)},
        "parameter_sensitivities": {
            "answers": Argument("function", lambda p: p),
            "parameters": Argument("row", {"a": array(2)}),
        },
        "identify": {
            "candidates": Argument("names", ("nadaraya_watson",)),
            "kernels": Argument("names", ("gaussian",)),
        },
        "held_out": {"build": Argument("function", lambda p: built), "targets": points(4, 3)},
        "marginal_likelihood": {"build": Argument("function", lambda p: built)},
        "start": {"settings": Argument("row", ik.training.Training(steps=1))},
        "Table": {
            "x": Argument("array", np.ones((6, 2))),
            "y": Argument("array", np.arange(6.0)),
            "features": Argument("names", ("a", "b")),
            "target": Argument("row", "c"),
        },
        "fit_probe": {"targets": points(4, 3)},
        "layerwise": {"probe": Argument("row", None)},
        "weighted": {"weights": points(5)},
        "nystrom_features": {"width": count()},
        "best": {"width": count()},
        "train": {"settings": Argument("row", ik.training.Training(steps=1)), "folder": None},
        "adapt": {
            "objective": Argument("function", lambda p: p["a"].sum()),
            "parameters": Argument("row", {"a": array(2)}),
            "positive": Argument("names", ()),
            "iterations": count(),
            "learning_rate": positive(),
        },
        "Training": {
            **{name: Argument("count from 0", 1) for name in ("warmup", "curriculum", "seed")},
            **{name: count() for name in ("steps", "batch", "log_every", "validation")},
            **{name: positive() for name in ("learning_rate", "clip")},
            **{name: Argument("nonnegative", 0.0) for name in ("decay", "weight_decay")},
            **{name: count(1) for name in ("min_supports", "start_supports", "start_features")},
        },
        "candidate": {"name": Argument("choice", "richardson")},
        "taken": {"solver": Argument("choice", "richardson")},
        "kernel_class": {"name": Argument("choice", "linear")},
        "make_kernel": {"name": Argument("choice", "linear"), "values": Argument("row", {})},
        "SweepConfig": {
            "axis": Argument("choice", "depth"),
            "kernel": CHOICE,
            "values": Argument("row", ()),
        },
        "DepthConfig": {"solver": Argument("choice", "richardson"), "kernel": CHOICE},
        "FitConfig": {
            "solver": Argument("choice", "conjugate_gradient"),
            "kernel": CHOICE,
            "objective": Argument("choice", "held-out"),
        },
        "ExplorerConfig": {"temperatures": Argument("row", (1.0,)), "ridges": Argument("row", ())},
    }


CHOICE = Argument("choice", None)
SKIPPED = {
    *("register", "load_weights", "save_weights", "save", "load", "to_t5", "open_t5"),  # files
    *("decoder_answers", "from_gpt2"),  # models of PyTorch
    *("Transformer", "advance", "forward"),  # no checks: the functions that call them check
    *("Axis", "Family", "Kernel", "Solver", "Box", "find", "spelled", "name_of"),  # rows
}


def functions(room: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Public functions and classes of a room that check their arguments, once each."""
    if room == "experiments":
        yield from ((config.__name__, config) for config in CONFIGS)
        return
    module = ik if room == "icl_krr" else getattr(ik, room)
    for name in module.__all__:
        thing = getattr(module, name)
        checked_class = inspect.isclass(thing) and hasattr(thing, "__post_init__")
        if name not in SKIPPED and (inspect.isfunction(thing) or checked_class):
            yield name, thing


FINE = {
    "DepthConfig.steps": ("None",),
    "preconditioned_chebyshev.num_supports": ("2.5",),  # a bound, which may be traced
    "round_slots.formats": ("{}",),
    **dict.fromkeys(
        ("lost_share_bound.dimension", "lost_share_bound.width", "sine"),
        ("array [2]", "0", "1e-60", "1e60"),
    ),
    **dict.fromkeys(
        [f"Task.{name}" for name in ("x", "y", "x_query", "y_query")], ("list", "tensor")
    ),
    "array": ("longer",),  # where a longer last axis is an error, "rank + 1" is one as well
    "hidden": ("0",),
    "mask": ("booleans", "list"),
    "name": ("'abc'",),
    "target": ("'abc'",),
    "hooks": ("{}",),
    "values": ("{}",),
    "embedding": ("{}",),
    "temperature": ("array [2]",),
    "lengthscale": ("array [2]",),
    "transplant.slots": ("{}",),
    "fit_candidate.points": ("3",),
    "align.cost": ("list", "tensor", "integers"),
    "inverse_error_bound.error": ("1e60",),
    "memory.task": ("batch",),
    "num_tokens.task": ("batch",),
    "Mixture.weights": ("integers",),
    "LinearRegression.spectrum": ("integers",),
    "Table.x": ("integers", "booleans"),
    "Table.y": ("integers", "booleans"),
    "read_table.path": ("missing",),
    "neumann_factor.sigma": ("0",),
    "best.x": ("rank + 1",),
    "energy_norm.error": ("rank + 1",),
    "query_error_dual.cross": ("rank + 1",),
    "query_error_features.cross_gap": ("rank + 1",),
    "query_error_dual.inverse_error": ("0",),
    "steps": ("2.5", "0"),  # bounds hold for any number of steps
    "width": ("2.5", "0", "array [2]"),
    **dict.fromkeys(("log_normaliser", "sigma"), ("integers", "rank + 1", "scalar", "empty")),
    **dict.fromkeys(
        ("a", "b", "error", "epsilon", "logit_bound"), ("array [2]", "0", "1e-60", "1e60")
    ),
    **dict.fromkeys(("spread", "gap", "signal", "noise"), ("array [2]", "0", "1e-60", "1e60")),
    **dict.fromkeys(("ridge", "step_size", "log_sink"), ("array [2]",)),
    "dtype": ("f8",),
}
"""Values that are good after all, by kind, argument or function and argument."""


TOGETHER = (
    ("answers", "hats"),
    ("streams", "stream_jacobians"),
    ("control_streams", "control_jacobians", "streams", "stream_jacobians"),
)
"""Arguments that must be given together: a bad one is given with good ones."""


class Call(NamedTuple):
    """A call with one bad argument."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    name: str
    argument: str
    value: str


def calls(room: str) -> Iterator[Call]:
    for name, function in functions(room):
        known = by_name() | overrides().get(name, {})
        taken = inspect.signature(function).parameters
        needed = {
            key: known[key].good
            for key, parameter in taken.items()
            if parameter.default is parameter.empty
            and known.get(key)
            and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        }
        for key, parameter in taken.items():
            if not (entry := known.get(key)):
                continue
            bad = of_array(entry.good) if entry.kind == "array" else KINDS[entry.kind]
            fine = {*FINE.get(entry.kind, ()), *FINE.get(f"{name}.{key}", ()), *FINE.get(key, ())}
            group = {*next((names for names in TOGETHER if key in names), ())} & {*taken} & {*known}
            other = partner(key, taken) | {name: known[name].good for name in group}
            for label, value in bad.items():
                is_default = value is parameter.default or repr(value) == repr(parameter.default)
                if label not in fine and not is_default:
                    yield Call(function, {**needed, **other, key: value}, name, key, label)


def partner(key: str, taken: Any) -> dict[str, Any]:
    """What a solver must be told besides the argument under test."""
    if {"kernel", "ridge", "model"} <= {*taken}:
        return {"kernel": ik.Linear(), "ridge": 0.5}
    if key in ("spectrum", "step_size"):
        return {"momentum": 0.1} if key == "step_size" and "momentum" in taken else {}
    if key == "momentum":
        return {"step_size": 0.1}
    optional = "spectrum" in taken and taken["spectrum"].default is None and "steps" in taken
    return {"spectrum": (0.5, 3.0)} if optional else {}


def outcome(call: Call) -> tuple[str, str]:
    """Refused, foreign or accepted, and the message."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            jax.block_until_ready(call.function(**call.arguments))
    except Exception as error:
        message = str(error)
        ours = is_ours(error)
        plain = isinstance(error, (TypeError, ValueError, MemoryError, KeyError, OSError))
        own = call.argument
        own = "y" if own == "task" and message.startswith("y must be") else own  # its part
        told = re.search(
            rf"\b({own}|{own.removesuffix('s')}|must be one of|No such file)\b", message
        )
        is_file = isinstance(error, OSError)
        kind = (
            "refused" if plain and (ours or is_file) and told and "\n" not in message else "foreign"
        )
        return kind, f"{type(error).__name__}: {message}"
    return "accepted", ""


SECONDS = 60
"""A command that runs so long has accepted its input."""


def ran(command: Command) -> tuple[str, str]:
    """Refused, foreign or accepted, and what the command said on standard error."""
    errors: list[BaseException | None] = []
    refuse = program.refuse

    def noted(reason: str) -> int:
        errors.append(sys.exc_info()[1])
        return refuse(reason)

    def too_long(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    said = io.StringIO()
    try:
        with (
            mock.patch.object(program, "refuse", noted),
            redirect_stderr(said),
            redirect_stdout(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            status = program.main(command.argv)
    except (TimeoutError, SystemExit) as end:  # help has the status 0
        return "accepted", type(end).__name__
    except Exception as error:
        return "foreign", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    if not errors:
        return "accepted", f"status {status}"
    lines = said.getvalue().splitlines()
    whole = status == 2 and len(lines) == 1 and lines[0].startswith("icl-krr: error: ")
    told = is_ours(errors[0]) or (isinstance(errors[0], OSError) and errors[0].filename)
    return ("refused" if whole and told else "foreign"), f"{errors[0]!r}: {said.getvalue()}"


def is_ours(error: BaseException | None) -> bool:
    """Whether a line `raise` of this library raised an error."""
    last = traceback.extract_tb(error and error.__traceback__)[-1]
    return Path(last.filename).is_relative_to(ROOT) and (last.line or "").startswith("raise")


def run_files(parts: tuple[str, ...]) -> tuple[dict[str, Counter], list[dict[str, str]]]:
    """Counts and exceptions of the commands with bad files, folders and words."""
    counts: dict[str, Counter] = {part: Counter() for part in parts}
    told = []
    for part in parts:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            for command in PARTS[part](writer(Path(folder))):
                kind, message = ran(command)
                counts[part][kind] += 1
                if kind != "refused":
                    row = {"part": part, "what": command.what, "value": command.value}
                    told.append(row | {"outcome": kind, "message": message[:300]})
    return counts, told


def run(rooms: tuple[str, ...]) -> dict[str, Any]:
    counts: dict[str, Counter] = {}
    told: list[dict[str, str]] = []
    seen: set[int] = set()
    for room in (room for room in rooms if room not in PARTS):
        counts[room] = Counter()
        own = {id(function) for _, function in functions(room)} - seen
        for call in calls(room):
            if id(call.function) not in own:
                continue
            kind, message = outcome(call)
            counts[room][kind] += 1
            if kind != "refused":
                first = message.splitlines()[0][:160] if message else ""
                row = {"room": room, "function": call.name, "argument": call.argument}
                told.append({**row, "value": call.value, "outcome": kind, "message": first})
        seen |= own
    more, others = run_files(tuple(room for room in rooms if room in PARTS))
    counts |= more
    told += others
    meta = records.meta("bad_inputs", "numpy", seed=0, dtype=str(jnp.result_type(float)))
    counted = {room: dict(count) for room, count in counts.items()}
    return {"meta": meta, "counts": counted, "others": told}


def markdown(counts: dict[str, dict[str, int]]) -> str:
    kinds = ("refused", "foreign", "accepted")
    lines = [f"| room or input | {' | '.join(kinds)} |", "| --- | ---: | ---: | ---: |"]
    total = Counter()
    for room, own in counts.items():
        if not own:  # all of its functions are those of an earlier room
            continue
        total.update(own)
        lines.append(f"| {room} | {' | '.join(str(own.get(kind, 0)) for kind in kinds)} |")
    lines.append(f"| all | {' | '.join(str(total[kind]) for kind in kinds)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rooms", nargs="*", default=(*ROOMS, *PARTS))
    parser.add_argument("--out", type=Path, default=records.RESULTS)
    given = parser.parse_args()
    found = run(tuple(given.rooms))
    records.save("bad_inputs", found, markdown(found["counts"]), given.out)
    print(markdown(found["counts"]), end="")
