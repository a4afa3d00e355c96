"""An independent execution: exported weights, run by a forward of this file's own in NumPy.

The weights go through `flax.serialization` to plain nested dicts of arrays; nothing of the
project and nothing of JAX runs them. What a model is besides its arrays (which slot a write
goes to, which activation a unit has) is read off as strings and integers.
"""

import flax.serialization
import jax
import numpy as np
import pytest
from helpers import SPECS, draw, of_random_weights, relative

import icl_krr as ik
from icl_krr.residual import ROLES

ACTIVATIONS = {
    "identity": lambda x: x,
    "exp": np.exp,
    "cos": np.cos,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: np.asarray(jax.nn.gelu(x)),
    "inverse": lambda x: 1 / x,
    "reciprocal": lambda x: np.divide(1, x, out=np.zeros_like(x), where=np.abs(x) > 1e-290),
}


def describe(model):
    """Names and numbers of the structure, block by block; no arrays."""
    return [
        {
            "heads": [(g.heads, [w.to for w in g.writes], g.pattern) for g in block.attention],
            "units": [(u.to, u.activation) for u in block.mlp],
        }
        for block in (*model.weights.prologue, *model.weights.steps)
    ]


def apply(read, stream, tokens, width=1):
    total = np.zeros((tokens, 1 if read["blocks"] else width))
    for slot, block in read["blocks"].items():
        total = total + (stream[slot] @ block if np.ndim(block) else stream[slot] * block)
    return total


def normalised(norms, stream):
    for slot, norm in norms.items():
        h = stream[slot] - stream[slot].mean(-1, keepdims=True)
        h = h / np.sqrt(np.mean(h * h, axis=-1, keepdims=True) + 1e-5)
        stream = {**stream, slot: h * norm["scale"] + norm["bias"]}
    return stream


def softmax(logits, mask):
    logits = np.where(mask, logits, -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def pair_of_relu(logits, mask):
    """Two heads of ReLU attention with opposite queries and values, relu(s) - relu(-s) = s."""
    return np.maximum(logits, 0) * mask - np.maximum(-logits, 0) * mask


PATTERNS = {"softmax": softmax, "linear": lambda logits, seen: logits * seen, "relu": pair_of_relu}


def add(stream, written):
    for slot, value in written:
        stream = {**stream, slot: stream[slot] + value}
    return stream


def run(arrays, structure, stream, mask, kind, prologue, steps):
    """The residual stream after every block."""
    tokens, path = len(mask), []
    order = [*range(prologue)]
    order += [prologue + b for _ in range(steps) for b in range(len(structure) - prologue)]
    for i, b in enumerate(order):
        step = (i - prologue) // max(len(structure) - prologue, 1)
        block = arrays["prologue"][str(b)] if b < prologue else arrays["steps"][str(b - prologue)]
        if b >= prologue:
            block = jax.tree.map(lambda leaf: leaf[min(step, len(leaf) - 1)], block)  # noqa: B023
        read, written = normalised(block["attention_norm"], stream), []
        for j, (heads, targets, pattern) in enumerate(structure[b]["heads"]):
            group = block["attention"][str(j)]
            shared = arrays["patterns"][pattern] if pattern else group
            q, k = (apply(shared[name], read, tokens, heads) for name in ("query", "key"))
            for t, slot in enumerate(targets):
                write = group["writes"][str(t)]
                v = apply(write["value"], read, tokens)
                each = zip(*(np.split(a, heads, axis=1) for a in (q, k, v)), strict=True)
                parts = [PATTERNS[kind](qh @ kh.T, mask) @ vh for qh, kh, vh in each]
                mixed = np.concatenate(parts, axis=1)
                written.append((slot, mixed if write["out"] is None else mixed @ write["out"]))
        stream, written = add(stream, written), []
        read = normalised(block["mlp_norm"], stream)
        for j, (slot, activation) in enumerate(structure[b]["units"]):
            unit = block["mlp"][str(j)]
            hidden = 1.0 if unit["up"] is None else apply(unit["up"], read, tokens)
            if unit["gate"] is not None:
                hidden = hidden * ACTIVATIONS[activation](apply(unit["gate"], read, tokens))
            written.append((slot, hidden if unit["out"] is None else hidden @ unit["out"]))
        stream = add(stream, written)
        path.append(stream)
    return path


def embedded(arrays, task, interleaved):
    """The stream of a trained model before its first block, from one line for each token."""
    p, outputs = task.num_features, np.asarray(task.y).reshape(task.num_supports, -1)
    nothing, silent = np.zeros(p), np.zeros(outputs.shape[1])
    lines = [(nothing, silent, 0)]
    for x, y in zip(np.asarray(task.x), outputs, strict=True):
        lines += [(x, silent, 2), (nothing, y, 1)] if interleaved else [(x, y, 1)]
    keys = len(lines)
    lines += [(x, silent, 2) for x in np.asarray(task.x_query)]
    x, y, roles = (np.stack(part) for part in zip(*lines, strict=True))
    role, e = np.eye(3)[roles], arrays["embedding"]["stream"]["blocks"]
    h = x @ e["x"] + y @ e["y"] + role @ np.concatenate([e[r] for r in ROLES])
    for table in arrays["positions"].values():
        h = h + table[np.minimum(np.arange(len(h)), keys)]  # all queries share one
    one = np.ones((len(h), 1)) * arrays["embedding"]["one"]["blocks"]["one"]
    return {"stream": h, "one": one}, keys


@pytest.mark.parametrize("name", ["encoder", "gpt2", "causal", "linear", "bilinear"])
def test_numpy_runs_a_model_of_random_weights(x64, name):
    options = {"num_features": 4, "width": 16, "depth": 3, "heads": 4, **SPECS[name]}
    model = of_random_weights(**options)
    task, spec = draw(1, r=options.get("num_outputs")), model.spec
    arrays = jax.tree.map(np.asarray, flax.serialization.to_state_dict(model.weights))
    start, keys = embedded(arrays, task, spec.tokens == "interleaved")
    mask = np.tile(np.arange(len(start["one"])) < keys, (len(start["one"]), 1))
    if spec.causal:
        mask &= np.tri(len(mask), k=-1, dtype=bool) | (np.arange(len(mask)) == 0)
    end = run(arrays, describe(model), start, mask, spec.attention, 0, model.steps)[-1]
    prediction = apply(arrays["readout"], normalised(arrays["final_norm"], end), len(mask))[keys:]
    assert relative(ik.predict(model, task), prediction.reshape(-1, *task.y.shape[1:])) < 1e-10
