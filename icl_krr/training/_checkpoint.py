"""Weights and checkpoints: one file, sealed by a checksum and replaced atomically."""

from __future__ import annotations

import dataclasses
import json
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import serialization
from jax.experimental.multihost_utils import process_allgather

from .._core import checks
from .._core.devices import spans_processes
from .._core.files import NO_CHECKSUM, replace, verify_checksum, with_checksum
from .._core.messages import one_line
from ._step import State

Config = dict[str, Any]


class Mismatch(ValueError):
    """A checkpoint belongs to another run or model; the message names every field that differs."""


def describe(value: Any, name: str = "") -> Config:
    """Flatten nested dataclasses into a dictionary: {"family.kernel.lengthscale": 0.4, ...}.

    A dataclass itself is recorded by the name of its class. An array of more than 16 entries
    becomes its dtype, shape and checksum.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        entries = {name: type(value).__name__}
        for field in dataclasses.fields(value):
            entries |= describe(getattr(value, field.name), f"{name}.{field.name}")
        return entries
    if isinstance(value, (tuple, list)):
        parts = [describe(part, f"{name}.{i}") for i, part in enumerate(value)]
        return {key: entry for part in parts for key, entry in part.items()}
    if hasattr(value, "dtype"):
        array = np.asarray(value)
        return {name: array.tolist() if array.size <= 16 else checksum(array)}
    return {name: value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)}


def checksum(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)} {zlib.crc32(array.tobytes()):08x}"


def compare(
    stored: Config, current: Config, path: Path, hint: str = "choose another file or folder"
) -> None:
    """Raise Mismatch if the configs differ."""
    if differs := checks.differences(stored, current):
        raise Mismatch(f"{path} does not match the given settings: {differs}; {hint}")


def save(path: Path, state: State, config: Config) -> None:
    """Save a state. Of several processes, which all have the same state, the first one does."""
    if jax.process_index() == 0:
        write(path, {"config": json.dumps(config), **arrays(state)})


def restore(path: Path, like: State, config: Config) -> State | None:
    """The saved state, on the devices of `like`; None if there is no file.

    Raises:
        Mismatch: another run saved it.
        ValueError: it cannot be read, or not all processes find it.
    """
    state = None
    if path.exists():
        record = read(path, "config", *arrays(like))
        compare(json.loads(record.pop("config")), config, path)
        saved = fill(path, arrays(like), {name: record[name] for name in arrays(like)})
        saved = jax.device_put(saved, jax.tree.map(lambda leaf: leaf.sharding, arrays(like)))
        key = jax.random.wrap_key_data(saved["key"])
        state = State(saved["model"], saved["optimiser"], key, saved["step"])
    if spans_processes():
        steps = process_allgather(np.asarray(-1 if state is None else int(state.step)))
        if np.ptp(steps):
            raise ValueError(
                f"{path.parent} must be a folder that all processes can reach, but the last steps "
                f"that they find in it are {steps.tolist()} (-1: none)"
            )
    return state


def arrays(state: State) -> dict[str, Any]:
    key = jax.random.key_data(state.key)
    return {"step": state.step, "key": key, "model": state.model, "optimiser": state.optimiser}


def save_weights(path: str | Path, model: Any) -> None:
    """Write the weights of a model, or any pytree of arrays, without the state of the optimiser.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save_weights(f"{folder}/weights.msgpack", {"w": np.arange(3)})
    ...     load_weights(f"{folder}/weights.msgpack", like={"w": np.zeros(3)})
    {'w': Array([0, 1, 2], dtype=int32)}
    """
    write(checks.path("path", path), {"model": model})


def load_weights(path: str | Path, like: Any) -> Any:
    """Read the weights of a model from a file that `save_weights` or `train` wrote.

    Args:
        like: model with the structure and the shapes of the saved weights. Its values are not used.

    Returns:
        A model with the structure of `like`, and the weights and dtypes of the file, but for half
        precision, which becomes single precision.

    Raises:
        Mismatch: names or shapes of the weights differ.
        ValueError: the file is not of this kind, or is damaged.

    >>> import icl_krr as ik
    >>> from tempfile import TemporaryDirectory
    >>> build = lambda t: ik.constructions.nadaraya_watson(ik.Exponential(t), num_features=1)
    >>> with TemporaryDirectory() as folder:
    ...     save_weights(f"{folder}/model.msgpack", build(2.0))
    ...     again = load_weights(f"{folder}/model.msgpack", like=build(1.0))
    >>> jax.tree.all(jax.tree.map(np.array_equal, again, build(2.0)))
    True
    """
    path = checks.path("path", path)

    def widen(leaf: Any) -> Any:
        return leaf.astype("f4") if getattr(leaf, "dtype", None) == "f2" else leaf

    weights = jax.tree.map(widen, read(path, "model")["model"])
    return jax.device_put(fill(path, like, weights, dtypes=False))


def save_half_precision(source: Path, target: Path) -> None:
    """Copy a file of weights in half precision; `load_weights` reads them in single precision.

    Args:
        source: file that `save_weights` or `train` wrote.
        target: file to write.

    Raises:
        ValueError: a weight is not finite in half precision.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as name:
    ...     weights, half = Path(name, "weights.msgpack"), Path(name, "half.msgpack")
    ...     save_weights(weights, {"w": np.ones(3, "f4") / 3})
    ...     save_half_precision(weights, half)
    ...     load_weights(half, like={"w": np.zeros(3)})
    {'w': Array([0.33325195, 0.33325195, 0.33325195], dtype=float32)}
    """
    half = jax.tree.map(lambda leaf: jnp.astype(leaf, "f2"), read(source, "model")["model"])
    for leaf in jax.tree.leaves(half):
        checks.finite(f"weights of {source} in float16", leaf)
    write(target, {"model": half})


def _is_float(part: Any) -> bool:
    return isinstance(part, float)


def write(path: Path, record: dict[str, Any]) -> None:
    plain = jax.tree.map(lambda leaf: leaf if isinstance(leaf, str) else np.asarray(leaf), record)
    # numbers are arrays by now; a float is fixed in the structure of the model, and stays there
    tree = serialization.to_state_dict(plain)
    content = jax.tree.map(lambda part: None if _is_float(part) else part, tree, is_leaf=_is_float)
    content = {"checksum": NO_CHECKSUM, **content}
    replace(path, with_checksum(serialization.msgpack_serialize(content)))


def read(path: Path, *names: str) -> dict[str, Any]:
    """The entries of a file; refuses a damaged file, and one without the entries `names`."""
    content = path.read_bytes()
    try:
        verify_checksum(content)
        record: Any = serialization.msgpack_restore(content)
        if missing := [name for name in names if name not in record]:
            raise ValueError(f"no entry {', '.join(missing)}")
    except Exception as error:
        raise ValueError(
            f"{path} must be a checkpoint, but cannot be read "
            f"({one_line(str(error) or type(error).__name__)})"
        ) from None
    return record


def fill(path: Path, like: Any, saved: Any, dtypes: bool = True) -> Any:
    """`like` with the saved arrays; a file may lack fields of `like` that hold no array."""
    plain = serialization.to_state_dict(like)
    compare(shapes(saved, dtypes), shapes(plain, dtypes), path)
    arrays = dict(jax.tree_util.tree_leaves_with_path(saved))
    filled = jax.tree_util.tree_map_with_path(lambda at, _: arrays[at], plain)
    return serialization.from_state_dict(like, filled)


def shapes(tree: Any, dtypes: bool) -> Config:
    return {
        jax.tree_util.keystr(
            at, simple=True, separator="."
        ): f"{getattr(leaf, 'dtype', type(leaf)) if dtypes else ''}{list(np.shape(leaf))}"
        for at, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
