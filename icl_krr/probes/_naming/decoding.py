"""Linear maps of streams: how much of a target they decode, of its values and its derivatives."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

RIDGES = np.append(0.0, 10.0 ** np.arange(-12.0, 1.0))
"""Ridges of a map, relative to the mean squared singular value of its channels."""


class StreamArrays(NamedTuple):
    """Streams before the first and after every layer [b, L + 1, q, d]; slopes in y [..., n]."""

    streams: np.ndarray
    slopes: np.ndarray


class Halves(NamedTuple):
    """Values and derivatives as rows [b q (1 + n), d]: those to fit maps, and those to score them.

    A value at a token of a task is one row, over the size of y. Its derivatives in the n outputs y
    of the supports are n more rows, and weigh about the same.
    """

    fitted: np.ndarray
    scored: np.ndarray

    def each(self, change: Any) -> Halves:
        return Halves(change(self.fitted), change(self.scored))


def as_rows(values: Any, slopes: Any, size: Any, xp: Any = jnp) -> Any:
    """Rows [b q (1 + n), d] of values [b, q, d] over the size of y, and of slopes [b, q, d, n]."""
    both = xp.concatenate([values[:, :, None] / size, xp.moveaxis(slopes, -1, 2)], axis=2)
    return both.reshape(-1, both.shape[-1])


class Decoder:
    """Linear maps from channels to targets, with a ridge that tasks left out choose.

    The last quarter of the tasks to fit chooses the ridge of each target. Directions below the
    precision of the channels' dtype are rounding errors.
    """

    def __init__(self, channels: Halves, tasks: int, dtype: Any):
        self.channels, self.dtype = channels, dtype
        self.cut = max(1, 3 * tasks // 4) * (len(channels.fitted) // tasks)

    @cached_property
    def whole(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return _decompose(self.channels.fitted, self.dtype)

    @cached_property
    def part(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return _decompose(self.channels.fitted[: self.cut], self.dtype)

    def basis(self, rows: np.ndarray | None = None) -> np.ndarray:
        """An orthonormal basis of what the channels decode on some rows to fit [rows, k]."""
        if rows is None:
            return self.whole[0]
        return _decompose(self.channels.fitted[rows], self.dtype)[0]

    def maps(self, targets: np.ndarray) -> np.ndarray:
        """The map [d, c] of every target, fitted to its rows [b q (1 + n), c]."""
        train, validation = targets[: self.cut], targets[self.cut :]
        left, sigma, right = self.part
        projected, rotated_targets = self.channels.fitted[self.cut :] @ right.T, left.T @ train
        errors = [
            np.sum((validation - projected @ shrink(sigma, rotated_targets, ridge)) ** 2, axis=0)
            for ridge in RIDGES
        ]
        best = np.argmin(errors, axis=0)
        left, sigma, right = self.whole
        rotated_targets = left.T @ targets
        coefficients = np.stack([shrink(sigma, rotated_targets, ridge) for ridge in RIDGES])
        return right.T @ np.take_along_axis(coefficients, best[None, None], axis=0)[0]

    def directions(self, targets: np.ndarray) -> np.ndarray:
        """The directions [c, d] along which one decoded target changes by 1 and no other.

        Along these directions, the channels vary with the targets if y varies:
        $(W^T S W)^{-1} W^T S$ for maps W and inner products S of the derivatives of the channels.

        Source: Haufe et al., On the interpretation of weight vectors of linear models, 2014, eq. 6.
        """
        maps, rows = self.maps(targets), self.channels.fitted
        rows = rows[rows[:, -1] == 0]  # the constant channel is 0 in rows of derivatives
        decoded = rows @ maps
        return np.linalg.pinv(decoded.T @ decoded) @ (decoded.T @ rows)

    def residual(self, targets: Halves) -> np.ndarray:
        """The rows to score without what the maps decode [b' q (1 + n), c]."""
        return targets.scored - self.channels.scored @ self.maps(targets.fitted)


def _decompose(channels: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Singular vectors and values without directions that are rounding errors.

    They come from the inner products of channels, because there are many more rows than channels.
    Channels are first divided by their sizes, so that a large channel hides no small one.
    """
    each = np.sqrt(np.mean(channels**2, axis=0))
    each = np.where(each > 0, each, 1)
    channels = channels / each
    squares, right = np.linalg.eigh(channels.T @ channels)
    tiny = max(channels.shape) * np.finfo(float).eps
    tiny = max(tiny, (max(channels.shape) * np.finfo(dtype).eps) ** 2)
    count = max(1, int(np.sum(squares > tiny * squares[-1])))
    sigma, right = np.sqrt(np.maximum(squares[-count:], 0)), right[:, -count:]
    return channels @ (right / np.where(sigma > 0, sigma, 1)), sigma, (right / each[:, None]).T


def shrink(sigma: np.ndarray, rotated_targets: np.ndarray, ridge: float) -> np.ndarray:
    scale = ridge * np.mean(sigma**2) + np.finfo(float).tiny
    return rotated_targets * (sigma / (sigma**2 + scale))[:, None]


class Decoders(NamedTuple):
    """Decoders of the streams [L + 1], and of what each block wrote [L]."""

    states: list[Decoder]
    innovations: list[Decoder]

    @property
    def spaces(self) -> dict[str, list[Decoder]]:
        """The decoders of the layers 1 to L by the statement that they serve."""
        return {"state": self.states[1:], "innovation": self.innovations}

    @property
    def earlier(self) -> Decoders:
        """The decoders of one layer earlier: a step that arrives in order is not there yet."""
        first = self.states[0]
        return Decoders([first, *self.states[:-1]], [first, *self.innovations[:-1]])


def decoders(layers: StreamArrays, fitted: int, size: float) -> Decoders:
    """Decoders for the first `fitted` tasks and the others; a constant channel: affine maps."""
    dtype = layers.streams.dtype
    values, slopes = (part.astype(float) for part in layers)
    values = values - values[:fitted].mean(axis=(0, 2), keepdims=True)
    scale = np.sqrt(np.mean(values**2)) or 1.0

    def decoder(values: np.ndarray, slopes: np.ndarray) -> Decoder:
        values = np.concatenate([values, np.full((*values.shape[:-1], 1), scale)], axis=-1)
        slopes = np.pad(slopes, ((0, 0), (0, 0), (0, 1), (0, 0)))
        halves = slice(fitted), slice(fitted, None)
        rows = Halves(*(as_rows(values[half], slopes[half], size, np) for half in halves))
        return Decoder(rows, fitted, dtype)

    each = range(values.shape[1])
    return Decoders(
        [decoder(values[:, i], slopes[:, i]) for i in each],
        [decoder(*(part[:, i] - part[:, i - 1] for part in (values, slopes))) for i in each[1:]],
    )


def baseline_decoder(start: Decoder, tasks: int, y: np.ndarray, size: float) -> Decoder:
    """The decoder of what needs no layer: the stream before the first one, and the mean of y."""
    count, n = y.shape
    tokens = len(start.channels.fitted) // (tasks * (1 + n))
    mean = np.broadcast_to(y.mean(axis=1)[:, None, None], (count, tokens, 1))
    slopes = np.full((count, tokens, 1, n), 1 / n)
    halves = slice(tasks), slice(tasks, None)
    rows = Halves(*(as_rows(mean[half], slopes[half], size, np) for half in halves))
    both = (np.concatenate(pair, axis=1) for pair in zip(start.channels, rows, strict=True))
    return Decoder(Halves(*both), tasks, start.dtype)
