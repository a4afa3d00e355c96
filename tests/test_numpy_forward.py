"""An independent execution: exported weights, run by a forward of this file's own in NumPy.

The weights go through `flax.serialization` to plain nested dicts of arrays; nothing of the
project and nothing of JAX runs them. What a model is besides its arrays (which slot a write
goes to, which activation a unit has) is read off as strings and integers.
"""

import flax.serialization
import jax
import numpy as np
from helpers import CASES, dense, draw, numpy, often

import icl_krr as ik
from icl_krr.residual import visible
from icl_krr.transformer import forward
from icl_krr.transformer.evaluate import embed_task

ACTIVATIONS = {
    "identity": lambda x: x,
    "exp": np.exp,
    "cos": np.cos,
    "relu": lambda x: np.maximum(x, 0),
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


def apply(read, stream, tokens):
    total = np.zeros((tokens, 1))
    for slot, block in read["blocks"].items():
        total = total + (stream[slot] @ block if np.ndim(block) else stream[slot] * block)
    return total


def softmax(logits, seen):
    logits = np.where(seen, logits, -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def pair_of_relu(logits, seen):
    """Two heads of ReLU attention with opposite queries and values, relu(s) - relu(-s) = s."""
    return np.maximum(logits, 0) * seen - np.maximum(-logits, 0) * seen


PATTERNS = {"softmax": softmax, "linear": lambda logits, seen: logits * seen, "relu": pair_of_relu}


def add(stream, written):
    for slot, value in written:
        stream = {**stream, slot: stream[slot] + value}
    return stream


def run(arrays, structure, stream, seen, kind, prologue, steps):
    """The residual stream after every block."""
    tokens, path = len(seen), []
    order = [*range(prologue)]
    order += [prologue + b for _ in range(steps) for b in range(len(structure) - prologue)]
    for i, b in enumerate(order):
        step = (i - prologue) // max(len(structure) - prologue, 1)
        block = arrays["prologue"][str(b)] if b < prologue else arrays["steps"][str(b - prologue)]
        if b >= prologue:
            block = jax.tree.map(lambda leaf: leaf[min(step, len(leaf) - 1)], block)  # noqa: B023
        written = []
        for j, (heads, targets, pattern) in enumerate(structure[b]["heads"]):
            group = block["attention"][str(j)]
            shared = arrays["patterns"][pattern] if pattern else group
            q, k = (
                apply(shared[name], stream, tokens) * np.ones((tokens, heads))
                if not shared[name]["blocks"]
                else apply(shared[name], stream, tokens)
                for name in ("query", "key")
            )
            for t, slot in enumerate(targets):
                write = group["writes"][str(t)]
                v = apply(write["value"], stream, tokens)
                parts = []
                for qh, kh, vh in zip(
                    *(np.split(a, heads, axis=1) for a in (q, k, v)), strict=True
                ):
                    logits = qh @ kh.T
                    parts.append(PATTERNS[kind](logits, seen) @ vh)
                mixed = np.concatenate(parts, axis=1)
                written.append((slot, mixed if write["out"] is None else mixed @ write["out"]))
        stream, written = add(stream, written), []
        for j, (slot, activation) in enumerate(structure[b]["units"]):
            unit = block["mlp"][str(j)]
            hidden = 1.0 if unit["up"] is None else apply(unit["up"], stream, tokens)
            if unit["gate"] is not None:
                hidden = hidden * ACTIVATIONS[activation](apply(unit["gate"], stream, tokens))
            written.append((slot, hidden if unit["out"] is None else hidden @ unit["out"]))
        stream = add(stream, written)
        path.append(stream)
    return path


@often(
    ("name", "merge", "kind"),
    (("cg-exponential", True, ""), ("cg-exponential", False, ""), ("gd", False, "relu")),
    [
        ("cg", False, ""),
        ("cg-exponential", True, ""),
        ("cg-exponential", False, ""),
        ("gd", False, "relu"),
        ("ric-tables", False, ""),
    ],
)
def test_numpy_runs_the_exported_weights_to_the_same_stream(x64, name, merge, kind):
    """Linear attention also as pairs of heads of ReLU attention (Bai et al., 2023)."""
    task = draw(0, p=3, n=9, q=2)
    model = CASES[name].build(task, 0.5, 4)
    model = dense(model) if merge else model
    exported = jax.tree.map(np.asarray, flax.serialization.to_state_dict(model.weights))
    start = numpy(jax.jit(embed_task)(model, task))
    prologue = len(model.weights.prologue)
    kind, seen = kind or model.spec.attention, np.asarray(visible(task))
    path = run(exported, describe(model), start, seen, kind, prologue, model.steps)
    _, cache = numpy(ik.run_with_cache(model, task, everything=True))
    assert len(path) == model.depth
    for i, stream in enumerate(path):
        for slot, value in stream.items():
            ours = np.asarray(cache[f"blocks.{i}.resid_post.{slot}"])
            assert np.max(np.abs(ours - value)) < 1e-10 * max(1, np.max(np.abs(value))), (i, slot)
    final = jax.jit(forward)(model, start, visible(task)).stream
    assert all(np.allclose(final[slot], path[-1][slot], atol=1e-10) for slot in final)
