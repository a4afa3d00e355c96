"""`python -m benchmarks.devices`: memory and work of each device, against the number of devices."""

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
from icl_krr.experiments import to_markdown
from icl_krr.transformer import Placement, step_cost, step_sent

CONTEXT = "context"
"""The axis of a mesh over which supports are divided."""
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
        build = ik.constructions.conjugate_gradient
        return build(self.kernel, num_features=self.p, ridge=float(self.n), steps=steps)

    def task(self, mesh: jax.sharding.Mesh, *, drawn: bool = False) -> ik.Task:
        config = ik.tasks.LinearRegression(num_features=self.p, num_supports=self.n)
        sampled = partial(ik.tasks.sample, jax.random.key(0), config)
        shapes = jax.eval_shape(sampled)
        if not drawn:
            return shapes

        def sharding(leaf: jax.ShapeDtypeStruct) -> jax.NamedSharding:
            return jax.NamedSharding(mesh, jax.P(CONTEXT if leaf.shape[0] == self.n else None))

        shardings = jax.tree.map(sharding, shapes)
        return jax.block_until_ready(jax.jit(sampled, out_shardings=shardings)())


CASES = {"linear": Case(ik.Linear(), 64, 2**20), "softmax": Case(ik.Exponential(8.0), 8, 2**17)}


def predict(model: ik.Transformer, task: ik.Task, mesh: jax.sharding.Mesh) -> jax.Array:
    return ik.predict(model, task, mesh=mesh)


def gradient(model: ik.Transformer, task: ik.Task, mesh: jax.sharding.Mesh) -> ik.Transformer:
    return jax.grad(lambda model: jnp.sum(predict(model, task, mesh)))(model)


PASSES: dict[str, Any] = {
    "forward": jax.jit(predict, static_argnames="mesh"),
    "gradient": jax.jit(gradient, static_argnames="mesh"),
}


def measured(name: str, which: str, count: int) -> dict[str, Any]:
    """Memory of one device, and its work in one step, of the program and by the formulas."""
    case, backward = CASES[name], which == "gradient"
    mesh = jax.make_mesh((count,), (CONTEXT,), devices=jax.devices()[:count])
    place = Placement(mesh, context=(CONTEXT,))
    model, task = case.model(STEPS), case.task(mesh)
    compiled = PASSES[which].lower(model, task, mesh=mesh).compile()
    program = parse(compiled.as_text())
    counts, sent = work_of_steps(program, STEPS), step_sent(model, task, place, gradient=backward)
    memory = compiled.memory_analysis()
    row = {
        "attention": name,
        "pass": which,
        "devices": count,
        "supports": case.n,
        "features": case.p,
        "arguments": memory.argument_size_in_bytes,
        "scratch": memory.temp_size_in_bytes,
        "flops": counts["flops"],
        "flops by formula": (3 if backward else 1) * step_cost(model, task, place).flops,
        "sent": counts["all-reduce"] + counts["collective-permute"] if count > 1 else 0,
        "sent by formula": sent.bytes,
        "collectives": sorted(collectives(program)) if count > 1 else [],
    }
    if name == "linear" or (which == "forward" and count == max(COUNTS)):
        steps = STEPS if name == "linear" else 1
        drawn = case.model(steps), case.task(mesh, drawn=True)
        run = PASSES[which].lower(*drawn, mesh=mesh).compile()
        # the first run also allocates what the process keeps; later, not all devices may hold their
        # scratch at the same time
        _, *counts = (growth(run, *drawn) for _ in range(3))
        row |= max(counts, key=lambda each: each["growth"])
        row["steps run"] = steps
    return row


def growth(run: Callable, *arguments: Any) -> dict[str, float]:
    """Seconds of a run, and the largest growth of the memory of the process while it runs."""
    process, ended, sizes = psutil.Process(), threading.Event(), []

    def watch() -> None:
        while not ended.wait(0.002):
            sizes.append(process.memory_info().rss)

    time.sleep(0.3)  # JAX frees the scratch of the run before in another thread
    before, start = process.memory_info().rss, time.perf_counter()
    watcher = threading.Thread(target=watch)
    watcher.start()
    jax.block_until_ready(run(*arguments))
    seconds = time.perf_counter() - start
    ended.set()
    watcher.join()
    return {"growth": max(sizes, default=before) - before, "seconds": seconds}


HEADER = [
    *("attention", "pass", "devices", "arguments, MB", "scratch, MB", "growth / devices, MB"),
    *("FLOPs of a step", "by formula", "bytes sent in a step", "by formula"),
]


def line(row: dict[str, Any]) -> list[str]:
    return [
        *(f"{row['attention']}, n = {row['supports']}", row["pass"], str(row["devices"])),
        *(f"{row[key] / 1e6:.1f}" for key in ("arguments", "scratch")),
        f"{row['growth'] / row['devices'] / 1e6:.1f}" if "growth" in row else "",
        *(f"{row[key]:.4g}" for key in ("flops", "flops by formula")),
        *(f"{row[key]:,}" for key in ("sent", "sent by formula")),
    ]


def main() -> None:
    records.options(__doc__, quick="")
    if not RETURNED.items() <= os.environ.items():  # the program starts again, with this setting
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | RETURNED)
    jax.config.update("jax_num_cpu_devices", max(COUNTS))
    rows = [measured(name, which, count) for name in CASES for which in PASSES for count in COUNTS]
    table = to_markdown((HEADER, [line(row) for row in rows]))
    device = f"{max(COUNTS)} virtual CPU devices, which share the cores"
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count()
    meta = records.meta("devices", device=device, cores=cores, dtype="float32", seed=0)
    records.save("devices", {"meta": meta, "rows": rows}, table)
    print(table, end="")


if __name__ == "__main__":
    main()
