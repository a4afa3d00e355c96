"""`python -m benchmarks.devices`: memory and work of each device, against the number of devices."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import psutil

import icl_krr as ik
from benchmarks import records
from benchmarks.compiled import collectives, parse, work_of_steps
from benchmarks.cost import step_cost, step_sent
from icl_krr._core.devices import CONTEXT, Placement
from icl_krr._core.files import to_markdown
from icl_krr.tasks._batches import specs
from icl_krr.transformer._divided import evaluate_divided

COUNTS = (1, 2, 4, 8)
STEPS = 3
"""Steps of a compiled program; no other loop has this length."""

RETURNED = {"MALLOC_MMAP_THRESHOLD_": str(2**16)}
"""glibc then returns all larger arrays to the system as soon as they are freed."""


class Case(NamedTuple):
    """Conjugate gradient on one task: kernel, number of features and of supports."""

    kernel: Any
    p: int
    n: int

    def model(self, steps: int) -> ik.Transformer:
        # a large ridge: the logits and states of no step overflow, whatever its precision
        return ik.constructions.conjugate_gradient(
            self.kernel, num_features=self.p, ridge=float(self.n), steps=steps
        )

    def task(self, place: Placement, *, drawn: bool = False) -> ik.Task:
        config = ik.tasks.LinearRegression(num_features=self.p, num_supports=self.n)
        sampled = partial(ik.tasks.sample, jax.random.key(0), config)
        shapes = jax.eval_shape(sampled)
        if not drawn:
            return shapes
        over = jax.tree.map(lambda spec: jax.NamedSharding(place.mesh, spec), specs(shapes, place))
        return jax.block_until_ready(jax.jit(sampled, out_shardings=over)())


CASES = {"linear": Case(ik.Linear(), 64, 2**20), "softmax": Case(ik.Exponential(8.0), 8, 2**17)}


def slopes(model: ik.Transformer, task: ik.Task, *, place: Placement) -> ik.Transformer:
    loss = lambda model: jnp.sum(evaluate_divided(model, task, place=place)[0])  # noqa: E731
    return jax.grad(loss)(model)


PASSES: dict[str, Any] = {
    "forward": evaluate_divided,
    "gradient": jax.jit(slopes, static_argnames="place"),
}


def measured(name: str, which: str, count: int) -> dict[str, Any]:
    """Memory of one device, and its work in one step, of the program and by the formulas."""
    case, gradient = CASES[name], which == "gradient"
    mesh = jax.make_mesh((count,), (CONTEXT,), devices=jax.devices()[:count])
    place = Placement(mesh, context=(CONTEXT,))
    model, task = case.model(STEPS), case.task(place)
    compiled = PASSES[which].lower(model, task, place=place).compile()
    program = parse(compiled.as_text())
    found, sent = work_of_steps(program, STEPS), step_sent(model, task, place, gradient)
    memory = compiled.memory_analysis()
    row = {
        "attention": name,
        "pass": which,
        "devices": count,
        "supports": case.n,
        "features": case.p,
        "arguments": memory.argument_size_in_bytes,
        "scratch": memory.temp_size_in_bytes,
        "flops": found["flops"],
        "flops by formula": (3 if gradient else 1) * step_cost(model, task, place).flops,
        "sent": found["all-reduce"] + found["collective-permute"] if count > 1 else 0,
        "sent by formula": sent.bytes,
        "collectives": sorted(collectives(program)) if count > 1 else [],
    }
    if name == "linear" or (which == "forward" and count == max(COUNTS)):
        steps = STEPS if name == "linear" else 1
        drawn = case.model(steps), case.task(place, drawn=True)
        run = PASSES[which].lower(*drawn, place=place).compile()
        # the first run also allocates what the process keeps; later, not all devices may hold their
        # scratch at the same time
        _, *found = (growth(run, *drawn) for _ in range(3))
        row |= max(found, key=lambda each: each["growth"])
        row["steps run"] = steps
    return row


def growth(run: Callable, *arguments: Any) -> dict[str, float]:
    """Seconds of a run, and the largest growth of the memory of the process while it runs."""
    process, ended, seen = psutil.Process(), threading.Event(), []

    def watch() -> None:
        while not ended.wait(0.002):
            seen.append(process.memory_info().rss)

    time.sleep(0.3)  # JAX frees the scratch of the run before in another thread
    before, start = process.memory_info().rss, time.perf_counter()
    watcher = threading.Thread(target=watch)
    watcher.start()
    jax.block_until_ready(run(*arguments))
    seconds = time.perf_counter() - start
    ended.set()
    watcher.join()
    return {"growth": max(seen, default=before) - before, "seconds": seconds}


HEADER = [
    *("attention", "pass", "devices", "arguments, MB", "scratch, MB", "growth / devices, MB"),
    *("FLOPs of a step", "by formula", "bytes sent in a step", "by formula"),
]


def line(row: dict[str, Any]) -> list[str]:
    grown = f"{row['growth'] / row['devices'] / 1e6:.1f}" if "growth" in row else ""
    return [
        *(f"{row['attention']}, n = {row['supports']}", row["pass"], str(row["devices"])),
        *(f"{row[key] / 1e6:.1f}" for key in ("arguments", "scratch")),
        grown,
        *(f"{row[key]:.4g}" for key in ("flops", "flops by formula")),
        *(f"{row[key]:,}" for key in ("sent", "sent by formula")),
    ]


def meta(name: str) -> dict[str, Any]:
    device = f"{max(COUNTS)} virtual CPU devices, which share the cores"
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count()
    return records.meta(name, device=device, cores=cores, dtype="float32", seed=0)


def main() -> None:
    records.options(__doc__, quick="")
    if not RETURNED.items() <= os.environ.items():  # the program starts again, with this setting
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | RETURNED)
    jax.config.update("jax_num_cpu_devices", max(COUNTS))
    rows = [measured(name, which, count) for name in CASES for which in PASSES for count in COUNTS]
    table = to_markdown((HEADER, [line(row) for row in rows]))
    records.save("devices", {"meta": meta("devices"), "rows": rows}, table)
    print(table, end="")


if __name__ == "__main__":
    main()
