"""Checkpoints: weights, optimiser, key, step and config in one file that is replaced atomically."""

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

from .. import checks
from ..fields import cut, shown
from ..files import SEAL, check_seal, from_json, replace, seal
from .step import State

FORMAT = 2
Config = dict[str, Any]


LATER = {"training.objective": "squared_error", "model.variance": False}
"""Settings that old checkpoints do not have, with the values of the runs that wrote them."""


class Mismatch(ValueError):
    """A checkpoint belongs to another run or model; the message names every field that differs."""


def describe(value: Any, name: str = "") -> Config:
    """Flatten nested dataclasses into a dictionary: {"family.kernel.lengthscale": 0.4, ...}.

    A dataclass itself is recorded by the name of its class. An array of more than 16 entries
    becomes its dtype, shape and checksum.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = {name: type(value).__name__}
        for field in dataclasses.fields(value):
            own |= describe(getattr(value, field.name), f"{name}.{field.name}")
        return own
    if isinstance(value, (tuple, list)):
        parts = [describe(part, f"{name}.{i}") for i, part in enumerate(value)]
        return {key: entry for part in parts for key, entry in part.items()}
    if hasattr(value, "dtype"):
        array = np.asarray(value)
        shown = array.tolist() if array.size <= 16 else checksum(array)
        return {name: shown}
    return {name: value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)}


def checksum(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)} {zlib.crc32(array.tobytes()):08x}"


def compare(
    there: Config, here: Config, path: Path, mend: str = "choose another file or folder"
) -> None:
    """Raise Mismatch if the configs differ."""
    there = {name: value for name, value in LATER.items() if name in here} | there
    if differs := checks.differences(there, here):
        raise Mismatch(f"{path} does not match the given settings: {differs}; {mend}")


def save(path: Path, state: State, config: Config, losses: list[jax.Array]) -> None:
    """Save a state, and the losses that are in no row of the metrics yet."""
    rest = {"config": json.dumps(config), "losses": np.asarray(losses)}
    write(path, {**rest, **arrays(state)})


def restore(path: Path, like: State, config: Config) -> tuple[State, list[jax.Array]]:
    """Read a saved state into the structure of `like`, and the losses saved with it.

    Raise Mismatch if another run saved it.
    """
    wanted = arrays(like)
    record = read(path, "config", "losses", *wanted)
    compare(from_json(record["config"]), config, path)
    saved = fill(path, wanted, {name: record[name] for name in wanted})
    return state_of(saved), list(map(jnp.asarray, record["losses"]))


def arrays(state: State) -> dict[str, Any]:
    key = jax.random.key_data(state.key)
    return {"step": state.step, "key": key, "model": state.model, "optimiser": state.optimiser}


def state_of(saved: dict[str, Any]) -> State:
    """The state with these `arrays`."""
    key = jax.random.wrap_key_data(saved["key"])
    return State(saved["model"], saved["optimiser"], key, saved["step"])


def save_weights(path: str | Path, model: Any) -> None:
    """Write the weights of a model to a file, without the state of the optimiser.

    Args:
        path: file to write. An existing file is replaced atomically.
        model: model, or any pytree of arrays.

    Raises:
        OSError: the file cannot be written.
        TypeError: `path` is no path.

    >>> import icl_krr as ik
    >>> from tempfile import TemporaryDirectory
    >>> model = ik.constructions.nadaraya_watson(ik.Exponential(2.0), num_features=1)
    >>> with TemporaryDirectory() as folder:
    ...     save_weights(Path(folder) / "model.msgpack", model)
    ...     again = load_weights(Path(folder) / "model.msgpack", like=model)
    >>> jax.tree.all(jax.tree.map(np.array_equal, again, model))
    True
    """
    write(checks.path("path", path), {"model": model})


def load_weights(path: str | Path, like: Any) -> Any:
    """Read the weights of a model from a weights file or from a checkpoint.

    Args:
        path: file that `save_weights` or `train` wrote.
        like: model with the structure and the shapes of the saved weights. Its values are not used.

    Returns:
        A model with the structure of `like`, the weights of the file and the dtypes of the file.

    Raises:
        Mismatch: names or shapes of the weights differ.
        ValueError: the file is not a weights file or checkpoint, is damaged, or has another format.
        OSError: the file cannot be opened.
        TypeError: `path` is no path.

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
    return fill(path, like, read(path, "model")["model"], dtypes=False)


def write(path: Path, record: dict[str, Any]) -> None:
    plain = jax.tree.map(lambda leaf: leaf if isinstance(leaf, str) else np.asarray(leaf), record)
    # numbers are arrays by now; a float is fixed in the structure of the model, and stays there
    fixed = lambda part: isinstance(part, float)  # noqa: E731
    tree = serialization.to_state_dict(plain)
    held = jax.tree.map(lambda part: None if fixed(part) else part, tree, is_leaf=fixed)
    whole = {"checksum": SEAL, "format": FORMAT, **held}
    replace(path, seal(serialization.msgpack_serialize(whole)))


def read(path: Path, *names: str) -> dict[str, Any]:
    """The entries of a file; refuses a damaged file, and one without the entries `names`."""
    content = path.read_bytes()
    try:
        check_seal(content)
        record: Any = serialization.msgpack_restore(content)
        if record["format"] != FORMAT:
            raise ValueError(f"format must be {FORMAT}, got {shown(record['format'])}")
        if missing := [name for name in names if name not in record]:
            raise ValueError(f"no entry {', '.join(missing)}")
    except Exception as error:
        raise ValueError(
            f"{path} must be a checkpoint, but cannot be read "
            f"({cut(str(error) or type(error).__name__)})"
        ) from None
    return record


def fill(path: Path, like: Any, saved: Any, dtypes: bool = True) -> Any:
    """`like` with the saved arrays; a file may lack fields of `like` that hold no array."""
    plain = serialization.to_state_dict(like)
    compare(shapes(saved, dtypes), shapes(plain, dtypes), path)
    arrays = dict(jax.tree_util.tree_leaves_with_path(saved))
    filled = jax.tree_util.tree_map_with_path(lambda at, _: arrays[at], plain)
    return jax.device_put(serialization.from_state_dict(like, filled))


def shapes(tree: Any, dtypes: bool) -> Config:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(
            at, simple=True, separator="."
        ): f"{getattr(leaf, 'dtype', type(leaf)) if dtypes else ''}{list(np.shape(leaf))}"
        for at, leaf in leaves
    }
