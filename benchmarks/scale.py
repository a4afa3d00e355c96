"""`python -m benchmarks.scale`: what a solve would cost with 10^8 supports on 1024 devices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh

import icl_krr as ik
from benchmarks import records
from benchmarks.cost import step_cost, step_sent
from benchmarks.devices import COUNTS, PASSES, Case, mesh_of, meta, sizes_of, step_seconds
from icl_krr.devices import CONTEXT, Placement
from icl_krr.files import to_markdown
from icl_krr.residual import num_tokens
from icl_krr.tasks.batches import own_part

N, DEVICES, P, STEPS = 10**8, 1024, 64, 16
KERNELS = {"linear": ik.Linear(), "softmax": ik.Exponential(float(P))}
RIDGES = (1e-2, 1e-4)
"""Ridges, divided by n."""

ACCURACY = 1e-6
SAMPLE = 2048
"""Supports whose kernel matrix stands for the spectrum."""

ACCELERATOR = {"FLOP/s": 67e12, "bytes/s of memory": 4.8e12, "bytes/s between machines": 50e9}
"""Data sheet of an H200 (SXM): float32 without tensor cores, and its memory; and one InfiniBand
port of 400 Gbit/s for each device."""


def of_attention(name: str, cores: int) -> dict[str, Any]:
    """Memory, work and communication of one of the devices, and the measured rate of a core."""
    place = Placement(AbstractMesh((DEVICES,), (CONTEXT,)), context=(CONTEXT,))
    whole, count = Case(KERNELS[name], P, N), max(COUNTS)
    model, task = whole.model(STEPS), whole.task(place)
    work, sent = step_cost(model, task, place), step_sent(model, task, place)
    own = own_part(task, place)
    # the devices of this machine get as many supports each
    here = Placement(mesh_of(count), context=(CONTEXT,))
    alike = whole._replace(n=count * own.num_supports)
    lowered = PASSES["forward"].lower(model, alike.task(here), place=here)
    timed, depths = (alike, (1, 9)) if name == "linear" else (whole._replace(n=2**14), (1, 5))
    seconds = step_seconds(timed, count, *depths)
    flops = count * step_cost(model, timed.task(here), here).flops
    return {
        "supports": own.num_supports,
        "tokens": num_tokens(own, model.spec.tokens),
        "bytes": sum(sizes_of(lowered.compile()).values()),
        "flops": work.flops,
        "moved": work.bytes,
        "sent": sent.bytes,
        "arrays": sent.arrays,
        "timed supports": timed.n // count,
        "timed step": seconds,
        "rate": flops / seconds / cores,
        "steps": [steps_needed(KERNELS[name], ridge) for ridge in RIDGES],
    }


def steps_needed(kernel: Any, ridge: float) -> dict[str, float]:
    """Condition number, effective dimension, and steps of conjugate gradient by its rate.

    K / n has nearly the same large eigenvalues for all n, so those of a sample stand for it.
    """
    x = jax.random.normal(jax.random.key(1), (SAMPLE, P))
    sigma = np.linalg.eigvalsh(np.asarray(kernel(x, x), float) / SAMPLE).clip(0)
    low, high = ridge, float(sigma[-1]) + ridge
    steps = 1
    while float(ik.theory.conjugate_gradient_rate(low, high, steps)) > ACCURACY:
        steps += 1
    return {
        "ridge / n": ridge,
        "condition": high / low,
        "dimension": float(ik.theory.effective_dimension(jnp.asarray(sigma, "f4"), ridge)),
        "steps": steps,
    }


def shown(seconds: float) -> str:
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "min"), (1.0, "s")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} us"


def document(measured: dict[str, Any]) -> str:
    rows = list(measured.values())
    on_core = [row["flops"] / row["rate"] for row in rows]
    speed, memory, sending = ACCELERATOR.values()
    on_gpu = [
        (max(row["flops"] / speed, row["moved"] / memory), row["sent"] / sending) for row in rows
    ]
    costs = {
        "supports of a device": [f"{row['supports']:,}" for row in rows],
        "memory of a device, forward (compiled)": [f"{row['bytes'] / 1e6:.3g} MB" for row in rows],
        "FLOPs of a device and step": [f"{row['flops']:.3g}" for row in rows],
        "bytes that a step moves in the memory of a device": [
            f"{row['moved']:.3g}" for row in rows
        ],
        "bytes that a device sends in a step": [f"{row['sent']:,}" for row in rows],
        "arrays in which it sends them": [f"{row['arrays']:,}" for row in rows],
        "measured FLOP/s of one core of this machine": [f"{row['rate']:.3g}" for row in rows],
        "step, one such core for each device": [shown(time) for time in on_core],
        "step, one H200 for each device: products and memory": [shown(a) for a, _ in on_gpu],
        "the same: communication": [shown(b) for _, b in on_gpu],
    }
    per_step = to_markdown((["", *measured], [[key, *cells] for key, cells in costs.items()]))
    solves = [
        [
            name,
            f"{needed['ridge / n']:g}",
            f"{needed['condition']:.3g}",
            f"{needed['dimension']:.3g}",
            str(steps),
            shown(steps * core),
            shown(steps * sum(gpu)),
        ]
        for (name, row), core, gpu in zip(measured.items(), on_core, on_gpu, strict=True)
        for needed in row["steps"]
        for steps in [min(needed["steps"], P + 1) if name == "linear" else needed["steps"]]
    ]
    header = [
        *("attention", "ridge / n", "condition number", "effective dimension", "steps"),
        *("solve on CPU cores", "solve on H200s"),
    ]
    link = {key: f"{value:.3g}" for key, value in ACCELERATOR.items()}
    softmax, linear = measured["softmax"], measured["linear"]
    tokens = softmax["tokens"]
    return f"""# {N:,} supports on {DEVICES} devices: what a solve would cost

No run of this size has been made. This page extrapolates what is counted and measured on one
machine. `python -m benchmarks.scale` writes it, and all its numbers come from that program.
The task has p = {P} features, one output and one query. A step is one step of conjugate gradient
in float32: by linear attention on the linear kernel, by softmax attention on the exponential
kernel with temperature {P}. The supports are divided over {DEVICES} devices.

## One step

{per_step}
Linear attention needs work proportional to n / devices, and its communication does not depend on
n. The time of its {linear["arrays"]} all-reduces is their latency, which is not in the table and
may well exceed the time of the products.

Softmax attention compares every token with every key: the {tokens:,} tokens of a device meet
{DEVICES} x {tokens:,} tokens, in {DEVICES} rounds. Its memory does not grow with the number of
devices, but one step takes {shown(on_core[1])} on one CPU core for each device, and
{shown(on_gpu[1][0])} on accelerators at their peak. For this size, linear attention on features of
the kernel is the practical choice.

## A whole solve

{to_markdown((header, solves))}
The number of steps is the smallest for which the rate of conjugate gradient, 2 q^t
(`icl_krr.theory.conjugate_gradient_rate`), is below {ACCURACY:g}. The condition number is
(largest eigenvalue of K + ridge) / ridge. In exact arithmetic, the linear kernel needs at most
p + 1 = {P + 1} steps, because K has rank p. The effective dimension is the number of directions
that the regression fits; the rate does not use it, and conjugate gradient often needs fewer steps.

## Assumptions

- Memory is what the compiler reports for devices with the same number of supports each
  ({linear["supports"]:,}). It does not depend on the number of devices, which only sets the number
  of rounds of the ring. A gradient needs more: it stores the slots that each step passes on.
- FLOPs, bytes moved and bytes sent are those of `benchmarks.cost`. A test reads the bytes sent from
  the compiled program. An all-reduce counts the size of its array once; a ring all-reduce sends
  2 (D - 1) / D times as much.
- The rate of a core is the work of {max(COUNTS)} virtual devices, divided by time and by the
  cores that they share, with {linear["timed supports"]:,} supports for each device for linear
  attention, and {softmax["timed supports"]:,} for softmax attention. It includes communication
  within the memory of this machine. The time is the difference of the shortest of 8 runs of two
  depths.
- An accelerator is an H200 by its data sheet: {link["FLOP/s"]} FLOP/s in float32 without tensor
  cores, and {link["bytes/s of memory"]} bytes/s of memory. It sends
  {link["bytes/s between machines"]} bytes/s to another machine, which limits the ring. No
  accelerator was measured: we assume that programs reach these rates. exp is not counted.
- Spectra are those of {SAMPLE} supports x ~ N(0, I), with K / n in place of the kernel's integral
  operator. Small eigenvalues are less accurate than large ones, and the effective dimension of a
  sample cannot exceed its size.

Not modelled: the latency of messages (the ring sends {softmax["arrays"]:,} arrays in a step),
overlap of communication with computation, stragglers, lost devices, reading the data, and rounding
errors of float32, which delay conjugate gradient for large condition numbers.
"""


def main() -> None:
    jax.config.update("jax_num_cpu_devices", max(COUNTS))
    about = meta("scale")
    found = {name: of_attention(name, about["cores"]) for name in KERNELS}
    record = {"meta": about, "accelerator": ACCELERATOR, "devices": found}
    records.save("scale", record, document(found))
    print(document(found), end="")


if __name__ == "__main__":
    main()
