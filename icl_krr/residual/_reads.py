"""Reads: linear maps from slots of the residual stream, with sums, multiples and products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.typing import DTypeLike

from .._core import checks
from .._core.constants import xp
from .._core.messages import unknown_name
from .._core.numerics import matmul
from .._core.readable import readable


@jax.tree_util.register_static
class Fixed(float):
    """A coefficient that is not a weight: part of the structure of a pytree, as zeros are.

    Training does not change it, so `forward` can rely on its value.

    Args:
        x: the number.

    >>> Read({"p": Fixed(-1)}, 1)({"p": jnp.ones((1, 1))}).tolist(), jax.tree.leaves(Fixed(-1))
    ([[-1.0]], [])
    """


@readable
@struct.dataclass
class Read:
    r"""The linear map $h \mapsto \sum_s h_s B_s$ of a stream $h$, summed over its slots $s$.

    Reads can be added, subtracted, multiplied by a scalar or by one number for each channel, and
    multiplied by a matrix on the right, as in `Kp + ridge * p`. Calling a read applies the map to a
    stream.

    Args:
        blocks: coefficients {slot: block}. A block $B_s$ is a matrix [width of the slot, width], or
            a scalar, which means this scalar times the identity matrix. The scalar is a weight, or
            a `Fixed` number.
        width: number of output channels.

    >>> import jax.numpy as jnp
    >>> Kp, p = Read({"Kp": jnp.ones(())}, 2), Read({"p": jnp.ones(())}, 2)
    >>> (Kp + 0.5 * p)({"Kp": jnp.ones((1, 2)), "p": jnp.ones((1, 2))}).tolist()
    [[1.5, 1.5]]
    """

    blocks: dict[str, Any]
    width: int = struct.field(pytree_node=False)
    __array_ufunc__ = None  # a number of NumPy times a read then calls __rmul__

    def __call__(self, stream: Mapping[str, jax.Array]) -> jax.Array:
        """Apply the map to a stream {slot: [T, width of the slot]}; the result is [T, width].

        A slot with one row has this row at all tokens.
        """
        for slot in self.blocks:
            if slot not in stream:
                raise ValueError(unknown_name("slot", slot, stream))
            if stream[slot].shape[-1] != self.rows(slot):
                raise ValueError(
                    f"slot {slot} must have width {self.rows(slot)} for this read, "
                    f"got {stream[slot].shape[-1]}"
                )
        terms = [
            matmul(stream[slot], block) if np.ndim(block) else stream[slot] * plain(block)
            for slot, block in self.blocks.items()
        ]
        tokens = max(len(value) for value in stream.values())
        if not terms:
            return jnp.zeros((tokens, self.width), next(iter(stream.values())).dtype)
        return jnp.broadcast_to(sum(terms[1:], terms[0]), (tokens, self.width))

    @property
    def slots(self) -> frozenset[str]:
        """The names of all slots that the read uses."""
        return frozenset(self.blocks)

    @property
    def slot(self) -> str:
        """The name of the only slot that the read uses."""
        (name,) = self.blocks
        return name

    def rows(self, slot: str) -> int:
        """Return the width that a slot must have for this read.

        Args:
            slot: one of its slots.
        """
        block = self.blocks[slot]
        return block.shape[0] if np.ndim(block) else self.width

    def matrix(self, slot: str, width: int) -> jax.Array | np.ndarray:
        """Return the coefficients of a slot as a matrix [width of the slot, self.width].

        Args:
            slot: name of a slot that the read uses.
            width: width of that slot.
        """
        self.check_width(slot, width)
        block = self.blocks[slot]
        if np.ndim(block):
            return block
        return plain(block) * np.eye(width, dtype=getattr(block, "dtype", None))

    def check_width(self, slot: str, width: int) -> None:
        """Check that a slot of this width fits the read.

        Args:
            slot: name of a slot that the read uses.
            width: width of the slot.
        """
        if width != self.rows(slot):
            scalar = "" if np.ndim(self.blocks[slot]) else " for a scalar block"
            raise ValueError(f"width of {slot} must be {self.rows(slot)}{scalar}, got {width}")

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Real):
            raise TypeError(
                f"a Read must be added to a Read, got {other!r}; the machine's one, times a "
                "number, is this number at every token"
            )
        if not isinstance(other, Read):
            return NotImplemented
        if self.width != other.width:
            raise ValueError(
                f"reads must have the same width to be added, got {self.width} for "
                f"{', '.join(sorted(self.slots))} and {other.width} for "
                f"{', '.join(sorted(other.slots))}"
            )
        blocks = dict(self.blocks)
        for slot, block in other.blocks.items():
            if slot not in blocks:
                blocks[slot] = block
            elif np.ndim(blocks[slot]) == np.ndim(block):
                blocks[slot] = blocks[slot] + block
            else:
                blocks[slot] = self.matrix(slot, self.width) + other.matrix(slot, self.width)
        return Read(blocks, self.width)

    def __mul__(self, scale: Any) -> Read:
        if isinstance(scale, Read):
            raise TypeError(
                "scale must be a scalar, got a Read; the machine's multiply(a, b, to) multiplies "
                "two reads"
            )
        if getattr(scale, "__array_ufunc__", True) is None:  # it multiplies itself, by __rmul__
            return NotImplemented
        if np.shape(scale) == (self.width,):
            return self @ (np.eye(self.width, dtype=scale.dtype) * scale[None])
        if np.ndim(scale) != 0:
            raise ValueError(
                f"scale must be a scalar or a vector [{self.width}], got shape "
                f"{list(np.shape(scale))}"
            )
        items = self.blocks.items()
        blocks = {slot: b * xp.asarray(scale, getattr(b, "dtype", float)) for slot, b in items}
        return Read(blocks, self.width)

    def __matmul__(self, matrix: jax.Array | np.ndarray) -> Read:
        if matrix.ndim != 2 or matrix.shape[0] != self.width:
            raise ValueError(
                f"matrix must be [{self.width}, out] to multiply a read of width {self.width}, "
                f"got shape {list(matrix.shape)}"
            )
        matrix = xp.asarray(matrix)
        blocks = {
            slot: xp.matmul(block, matrix) if np.ndim(block) else plain(block) * matrix
            for slot, block in self.blocks.items()
        }
        return Read(blocks, matrix.shape[1])

    __rmul__ = __mul__

    def __neg__(self) -> Read:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -other


def plain(block: jax.Array | Fixed) -> jax.Array | float:
    """A scalar that does not change the dtype of NumPy arrays either."""
    return float(block) if isinstance(block, Fixed) else block


def join(*reads: Read) -> Read:
    """Place the outputs of several reads side by side.

    Args:
        reads: one or more reads, whose widths are added.

    >>> import jax.numpy as jnp
    >>> both = join(Read({"x": jnp.ones(())}, 2), Read({"one": jnp.ones(())}, 1))
    >>> both({"x": jnp.full((1, 2), 3.0), "one": jnp.ones((1, 1))}).tolist()
    [[3.0, 3.0, 1.0]]
    """
    if not reads or not all(isinstance(read, Read) for read in reads):
        raise TypeError(f"reads must be at least one Read, got {checks.short_repr(reads)}")
    blocks = {}
    for slot in dict.fromkeys(slot for read in reads for slot in read.blocks):
        having = [read for read in reads if slot in read.blocks]
        rows = having[0].rows(slot)
        dtype = jnp.result_type(*(getattr(r.blocks[slot], "dtype", float) for r in having))
        parts = [
            read.matrix(slot, rows) if slot in read.blocks else np.zeros((rows, read.width), dtype)
            for read in reads
        ]
        blocks[slot] = xp.concatenate(parts, axis=1)
    return Read(blocks, sum(read.width for read in reads))


def read_together(reads: Sequence[Read], stream: Mapping[str, jax.Array]) -> list[jax.Array]:
    """Apply reads to a stream; if all multiply the same slots by matrices, as one product."""
    alike = {read.slots for read in reads}
    matrices = all(block.ndim for read in reads for block in read.blocks.values())
    if len(reads) == 1 or len(alike) > 1 or not matrices or not all(alike):
        return [read(stream) for read in reads]
    return jnp.split(join(*reads)(stream), np.cumsum([r.width for r in reads])[:-1], axis=1)


def one_hot(start: int, width: int, total: int, dtype: DTypeLike) -> np.ndarray:
    """The matrix [width, total] that copies `width` channels to the columns from `start` on."""
    return np.eye(width, total, k=start, dtype=dtype)
