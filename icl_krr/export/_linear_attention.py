"""Sequences of linear attention layers as tasks, for a comparison with solvers as weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from .._core import checks
from .._core.readable import readable
from ..kernels import Linear
from ..tasks import Task
from ..tasks._conversion import as_numpy

_READ_TOKEN = {"momentum": 1.0, "decay": 1.0, "step_size": 0.0, "process_noise": 0.0}
"""Parameters of a token that reads without writing: it leaves all states unchanged."""


@readable
@dataclass(frozen=True, eq=False)
class LayerInputs:
    r"""The inputs of one head of a layer, as a task and as keywords of causal constructions.

    `from_linear_attention` returns it. A support carries its key, its write strength, its
    log gate and the further numbers side by side in x.

    Args:
        task: task with the keys as supports and the values as outputs; the only query is the last
            one of the layer.
        keywords: keywords of a causal construction: kernel, num_features, num_outputs, prefix, and
            strength, log_gate and the names of further numbers, as far as the tokens have them. An
            oracle takes all but num_features and num_outputs.
        reads: number of the support at which the layer reads for each token [T].
        scale: factor of the outputs.

    >>> layer = from_linear_attention(None, [[1.0]], [[2.0]])
    >>> layer.outputs(np.array([[3.0]])).tolist(), layer.keywords["num_features"]
    ([[3.0]], 1)
    """

    task: Task
    keywords: dict[str, Any]
    reads: np.ndarray
    scale: float

    def outputs(self, along: Float[Array, "n V"]) -> np.ndarray:
        """Take the outputs o [T, V] of the layer from predictions along the supports.

        Args:
            along: what `icl_krr.predict_along` returns, or `along[-1]` of an oracle.
        """
        return self.scale * np.asarray(along)[self.reads]


def from_linear_attention(
    q: Any,
    k: Any,
    v: Any,
    beta: Any = None,
    g: Any = None,
    *,
    momentum: Any = None,
    decay: Any = None,
    step_size: Any = None,
    process_noise: Any = None,
    erase: Any = None,
    scale: float | None = None,
) -> LayerInputs:
    r"""Read the inputs of one head of a recurrent layer, after its normalisations and activations.

    The arrays are those that the plain recurrent forms of DeltaNet, Gated DeltaNet, KDA, Momentum
    DeltaNet, Kalman Delta Networks and Mesa layers take, for one sequence and one head: of q
    [B, T, H, K], give q[b, :, h]. A token forgets, writes, and then reads at its query. Where
    queries are not keys, the query of a token becomes a support of its own, right after the writes
    of the token. It has strength 0 and log gate 0, so it changes no other output. The task then has
    2 T supports.

    Args:
        q: queries [T, K], or None if they are the keys.
        k: keys [T, K], or [T, h, K] for h writes in a token, as in DeltaProduct.
        v: values [T, V], or [T, h, V].
        beta: write strengths [T] or [T, h]; default None: 1.
        g: log gates, [T], or [T, K] for one of each channel; default None: 0.
        momentum: factors of each token [T] for `momentum_delta_rule`, or one for all; it counts at
            every write of a token. Where queries are not keys, give momentum, decay and step size
            here and none to the construction, so that reads change no state. Default None.
        decay: the same for the decay; default None.
        step_size: the same for the step size of this rule; default None.
        process_noise: the same for `kalman_delta_rule`; default None.
        erase: vectors [T, K] at which a token erases, for the keyword of `delta_rule`, such as the
            products of erase gates and keys in Gated DeltaNet-2; default None: the keys.
        scale: factor of the outputs; default None: $1 / \sqrt{K}$, as in the layers.

    Returns:
        A `LayerInputs`. Give its `keywords` and the parameters of the rule to a construction, with
        at least `task.num_supports` steps for a delta rule, and give what
        `icl_krr.predict_along` returns to `outputs`.

    Source: Yang et al., Gated delta networks: improving Mamba2 with delta rule, 2024, for q, k, v,
    beta and g; Siems et al., DeltaProduct: improving state-tracking in linear RNNs via Householder
    products, 2025, for several writes.

    >>> import icl_krr as ik
    >>> k = v = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> layer = from_linear_attention(k, k, v, beta=[1.0, 1.0, 0.5], scale=1.0)
    >>> model = ik.constructions.delta_rule(**layer.keywords, step_size=1.0, steps=3)
    >>> layer.outputs(ik.predict_along(model, layer.task)).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    kwargs = {"q": q, "k": k, "v": v, "beta": beta, "g": g, "erase": erase, "momentum": momentum}
    kwargs |= {"decay": decay, "step_size": step_size, "process_noise": process_noise}
    for name in ("k", "v"):
        if kwargs[name] is None:
            raise TypeError(f"{name} must be an array, got None")
    if scale is not None:
        checks.positive_scalar("scale", scale)
    arrays = {name: as_numpy(name, value) for name, value in kwargs.items() if value is not None}
    for name, array in arrays.items():
        checks.numeric(name, array)
        checks.finite(name, array)
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    if not len(arrays["k"]):
        raise ValueError(f"k must have at least one token, got shape {list(arrays['k'].shape)}")
    k, v = (_with_write_axis(name, arrays[name], 3) for name in ("k", "v"))
    T, h, K = k.shape
    beta = _with_write_axis("beta", arrays.get("beta", np.ones((T, h), k.dtype)), 2)
    g = arrays.get("g", np.zeros(T, k.dtype))
    g = g[:, None] if g.ndim == 1 else g
    _check_shape("v", v, (T, h, v.shape[-1]))
    _check_shape("beta", beta, (T, h))
    _check_shape("g", g, (T, g.shape[-1] if g.shape[-1] == K else 1))
    q = arrays.get("q", k[:, -1])
    _check_shape("q", q, (T, K))
    separate_reads = not np.array_equal(q, k[:, -1])
    width = h + separate_reads

    def support_rows(writes: np.ndarray, read: Any = 0.0, first: Any = None) -> np.ndarray:
        """The rows of all supports: for each token, those of its writes, then that of its read."""
        rows = np.zeros((T, width, writes.shape[-1]), k.dtype)
        rows[:, :h] = writes
        if first is not None:
            rows[:, 0] = first
        rows[:, h:] = np.reshape(read, (-1, 1, np.shape(read)[-1] if np.ndim(read) else 1))
        return rows.reshape(T * width, -1)

    channels = {"kernel": support_rows(k, q)}
    if separate_reads or "beta" in arrays:
        channels["strength"] = support_rows(beta[:, :, None])
    if "g" in arrays:
        channels["log_gate"] = support_rows(np.zeros((T, 1, g.shape[1])), first=g)
    if "erase" in arrays:
        _check_shape("erase", arrays["erase"], (T, K))
        channels["erase"] = support_rows(arrays["erase"][:, None])
    for name in (name for name in _READ_TOKEN if name in arrays):
        if arrays[name].ndim:
            _check_shape(name, arrays[name], (T,))
        writes = np.broadcast_to(arrays[name], T)[:, None, None]
        channels[name] = support_rows(writes, _READ_TOKEN[name])
    x = np.concatenate([*channels.values()], axis=1)
    ends = np.cumsum([part.shape[1] for part in channels.values()])[:-1]
    flags = dict(zip(channels, np.split(np.eye(x.shape[1], dtype=k.dtype), ends), strict=True))
    last = np.concatenate([q[-1:], 0 * x[-1:, K:]], axis=1)
    keywords = {
        "num_features": x.shape[1],
        "num_outputs": v.shape[-1],
        "prefix": "inclusive",
        **{n: rows if len(rows) > 1 or n == "erase" else rows[0] for n, rows in flags.items()},
        "kernel": Linear(projection=flags["kernel"]),
    }
    reads = np.arange(T) * width + width - 1
    task = Task(x=x, y=support_rows(v), x_query=last)
    return LayerInputs(task, keywords, reads, K**-0.5 if scale is None else scale)


def _with_write_axis(name: str, array: np.ndarray, axes: int) -> np.ndarray:
    """The array with an axis for the writes of a token."""
    if array.ndim not in (axes - 1, axes):
        raise ValueError(
            f"{name} must have {axes - 1} axes, or {axes} for several writes in a token, got "
            f"shape {list(array.shape)}; give one sequence and one head, such as {name}[b, :, h]"
        )
    return array if array.ndim == axes else array[:, None]


def _check_shape(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(
            f"{name} must have shape {list(shape)} to fit k, got {list(array.shape)}; give one "
            "sequence and one head"
        )
