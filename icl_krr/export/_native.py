"""Models as files: named weight tensors, with all other parts of the model as JSON metadata."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialize

from .._core import checks, messages
from .._core.files import NO_CHECKSUM, replace, verify_checksum, with_checksum
from ..residual import Fixed, Layout, Read, Slot
from ..tasks import Task
from ..transformer import Architecture, Block, Heads, Norm, Spec, Transformer, Unit, Weights, Write
from ..transformer._block import ACTIVATIONS
from ..transformer._readouts import readouts

FORMAT = 2


@dataclass(frozen=True)
class Model:
    """The parts of a `Transformer` that a file holds."""

    weights: Weights
    spec: Spec
    layout: Layout
    steps: int


PARTS: tuple[Any, ...] = (
    *(Model, Spec, Architecture, Layout, Slot),
    *(Weights, Block, Heads, Write, Unit, Norm, Read),
)
TYPES = {part.__name__: part for part in PARTS}

Tensors = dict[str, np.ndarray]


def save(path: str | Path, model: Transformer) -> None:
    """Write a model to one safetensors file.

    Each leaf is a tensor, named by its path below `model.weights`, such as
    `steps.0.attention.1.query.blocks.x`, in its own dtype. The metadata hold one JSON text with
    spec, layout, steps, the structure of the weights, a checksum of the whole file, and the
    versions of this format and of `icl_krr`. Any safetensors reader can open the file, and `load`
    rebuilds the model. An existing file is replaced only when the new file is complete.

    Raises:
        TypeError: `model` is not a `Transformer` with float32 or float64 weights, or the class of
            one of its parts is not from `icl_krr`.

    >>> import icl_krr as ik
    >>> from tempfile import TemporaryDirectory
    >>> model = ik.constructions.nadaraya_watson(ik.Exponential(2.0), num_features=1)
    >>> with TemporaryDirectory() as folder:
    ...     save(f"{folder}/model.safetensors", model)
    ...     again = load(f"{folder}/model.safetensors")
    >>> jax.tree.structure(again) == jax.tree.structure(model), again.layout == model.layout
    (True, True)
    """
    if not isinstance(model, Transformer):
        raise TypeError(f"model must be an icl_krr.Transformer, got {type(model).__name__}")
    checks.count("steps", model.steps)
    path = checks.path("path", path)
    tensors: Tensors = {}
    saved = Model(model.weights, model.spec, model.layout, model.steps)
    record = {"checksum": NO_CHECKSUM, "format": FORMAT, "version": version("icl_krr")}
    record["model"] = encode(saved, "", tensors)
    write(path, tensors, {"icl_krr": json.dumps(record)})


def load(path: str | Path) -> Transformer:
    """Read a model from a file that `save` wrote.

    Weights and structure equal those of the saved model.

    Raises:
        ValueError: `save` did not write the file, any bit of it has changed, it has another format
            version, it does not hold a model that runs, or it has float64 weights and x64 is not
            enabled.

    >>> import icl_krr as ik
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = f"{folder}/model.safetensors"
    ...     save(file, ik.constructions.nadaraya_watson(ik.Exponential(2.0), num_features=1))
    ...     load(file).depth
    1
    """
    path = checks.path("path", path)
    record, tensors = read(path)
    if record["format"] != FORMAT:
        raise ValueError(
            f"{path} must have format {FORMAT}, got {messages.short_repr(record['format'])}, "
            f"written by icl_krr {messages.short_repr(record['version'])}; load it with that "
            "version of icl_krr"
        )
    for name, tensor in tensors.items():
        if jax.dtypes.canonicalize_dtype(tensor.dtype) != tensor.dtype:
            raise ValueError(
                f"{path} has {tensor.dtype} weights ({messages.one_line(name)}), which need x64; "
                'call jax.config.update("jax_enable_x64", True) before loading'
            )
    try:
        saved = decode(record["model"], tensors)
        if type(saved) is not Model or tensors:
            raise ValueError(
                f"got {type(saved).__name__} and tensors {messages.short_repr([*tensors])}"
            )
        checks.count("steps", saved.steps)
        model = Transformer(saved.weights, saved.spec, saved.layout, saved.steps)
        check_runs(model)
    except Exception as error:  # a wrong part can break the forward in any way
        raise ValueError(
            f"{path} must hold all parts of a model and no other parts: "
            f"{messages.one_line(str(error))}"
        ) from None
    return model


def check_runs(model: Transformer) -> None:
    """Trace the forward pass of a task, which meets every weight, slot and setting."""
    checks.instance("patterns", model.weights.patterns, dict, "an object")
    slots = {slot.name: slot.width for slot in model.layout.slots}
    widths = {slot: read.width for slot, read in model.weights.embedding.items()}
    if widths not in (slots, {"stream": model.layout.width}):
        raise ValueError(f"layout must have the slots {widths}, got {slots}")
    reads = jax.tree.leaves(model, is_leaf=lambda part: isinstance(part, Read))
    for read in (part for part in reads if isinstance(part, Read)):
        output = {block.shape[-1] for block in read.blocks.values() if np.ndim(block) > 1}
        if output - {read.width}:
            raise ValueError(f"width must be one of {output}, got {read.width}")
    for unit in (unit for block in model.blocks for unit in block.mlp):
        checks.choice("activation", unit.activation, tuple(ACTIVATIONS))
    number = partial(jax.ShapeDtypeStruct, dtype=model.dtype)
    p, r = model.spec.num_features, model.spec.num_outputs
    task = Task(x=number((1, p)), y=number((1, r)), x_query=number((1, p)))
    output = jax.eval_shape(readouts, model, task)["prediction"]
    if output.shape != (1, r):
        raise ValueError(f"prediction must have shape [1, {r}], got {list(output.shape)}")


def read(path: Path) -> tuple[dict[str, Any], Tensors]:
    """The JSON record and the tensors of a file; refuses a file that `save` did not write."""
    content = path.read_bytes()  # raises OSError; safetensors raises errors of its own
    try:
        verify_checksum(content)
        with safe_open(path, "numpy") as file:
            record = json.loads((file.metadata() or {})["icl_krr"])
            if not {"format", "version", "model"} <= set(record):
                raise KeyError("format")
            return record, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} must be a complete file written by icl_krr.export.save, "
            f"got another file ({messages.one_line(str(error))})"
        ) from None


def write(path: Path, tensors: Tensors, metadata: dict[str, str]) -> None:
    # safetensors writes the memory of an array as if it were in C order
    rows = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    replace(path, with_checksum(serialize(rows, metadata)))


def encode(value: Any, path: str, tensors: Tensors) -> Any:
    """A part as JSON: {"$type": class, ...} for a dataclass, {"$tensor": name} for an array."""
    if type(value) in PARTS:
        parts = {
            field.name: encode(getattr(value, field.name), join_path(path, field.name), tensors)
            for field in dataclasses.fields(value)
            if not field.metadata.get("dropped")
        }
        return {"$type": type(value).__name__, **parts}
    if isinstance(value, tuple):
        return [encode(part, join_path(path, str(i)), tensors) for i, part in enumerate(value)]
    if isinstance(value, dict):
        return {name: encode(part, join_path(path, name), tensors) for name, part in value.items()}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Fixed):
        return {"$fixed": float(value)}
    if isinstance(value, np.integer):
        return int(value)
    if not isinstance(value, (jax.Array, np.ndarray, np.generic)):
        raise TypeError(
            f"{path} must be an array or one of {', '.join(TYPES)}, got {type(value).__name__}"
        )
    checks.factorable(path, value)
    name = path.removeprefix("weights.")
    tensors[name] = np.asarray(value)
    return {"$tensor": name}


def decode(value: Any, tensors: Tensors) -> Any:
    """The part of a JSON value; takes its tensors out of `tensors`."""
    if isinstance(value, list):
        return tuple(decode(part, tensors) for part in value)
    if not isinstance(value, dict):
        return value
    if "$fixed" in value:
        return Fixed(value["$fixed"])
    if "$tensor" in value:
        tensor = tensors.pop(value["$tensor"])
        checks.factorable(value["$tensor"], tensor)
        return jax.device_put(tensor)  # jnp.asarray would compile a copy for every shape
    parts = {name: decode(part, tensors) for name, part in value.items() if name != "$type"}
    if "$type" not in value:
        return parts
    return TYPES[value["$type"]](**parts)


def join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
