"""Arrays of numbers from the files of other people."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from ..._core.messages import one_line
from ...tasks import Task

MASK = "mask"
"""The one array of booleans."""


def read_arrays(path: Path, names: Collection[str], more: Collection[str] = ()) -> dict[str, Any]:
    """Arrays of a file in float64, a mask in booleans."""
    with path.open("rb") as file:
        try:
            # NumPy takes any other file for a pickle
            if not file.read(6).startswith((b"PK", np.lib.format.MAGIC_PREFIX)):
                raise ValueError("it is not a NumPy file")
            file.seek(0)
            data = np.load(file, allow_pickle=False)
            if not isinstance(data, np.lib.npyio.NpzFile):
                raise ValueError("it holds one array without a name")
            arrays = {name: np.asarray(data[name]) for name in (*names, *more) if name in data}
        except Exception as error:  # NumPy, zipfile and zlib raise a dozen kinds for damaged files
            raise ValueError(
                f"{path} must be a NumPy file as numpy.savez writes it, but cannot be read "
                f"({one_line(str(error).partition('. ')[0] or type(error).__name__)})"
            ) from None
    require(path, arrays, names)
    return {name: converted(f"{path}: {name}", name, value) for name, value in arrays.items()}


def require(path: Path, stored: Collection[str], names: Collection[str], hint: str = "") -> None:
    """Raise an error unless the file holds all arrays of these names."""
    if missing := [name for name in names if name not in stored]:
        raise ValueError(
            f"{path} must hold the arrays {', '.join(names)}; {', '.join(missing)} is missing{hint}"
        )


def converted(where: str, name: str, value: np.ndarray) -> np.ndarray:
    """Real numbers as float64, in the byte order of the machine."""
    if name == MASK and value.dtype == bool:
        return value
    if name == MASK or value.dtype.kind not in "fiu":
        kind = "booleans" if name == MASK else "real numbers"
        raise ValueError(f"{where} must be an array of {kind}, got dtype {value.dtype}")
    with np.errstate(over="ignore"):  # the caller refuses what is not finite
        return value.astype(float)


def task_of(path: Path, arrays: dict[str, Any]) -> Task:
    """The task of a file; errors name the file."""
    try:
        return Task(**arrays)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
