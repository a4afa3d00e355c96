"""`python -m benchmarks.export`: compare exported T5 encoders with the forward pass of icl_krr."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

import icl_krr as ik
from benchmarks.figures import worst
from benchmarks.records import RESULTS, listed
from icl_krr.export import T5, to_t5
from icl_krr.files import replace, to_markdown

WIDTH, SEED = 256, 0
PROCESS = ik.tasks.GaussianProcess(ik.Exponential(0.5), num_queries=64, inputs="sphere")
EXPONENTIAL, GAUSSIAN, RIDGE = ik.Exponential(0.5), ik.Gaussian(0.5**0.5), 0.1 * np.exp(2)
CASES = (
    ("richardson", GAUSSIAN, 0.1, 300),
    ("chebyshev", EXPONENTIAL, RIDGE, 80),
    ("conjugate_gradient", EXPONENTIAL, RIDGE, 4),
)
HEADER = [
    *("construction", "steps", "layers", "d_model", "d_kv", "d_ff", "dtype"),
    *("largest slot error (slot, layer)", "alpha error", "read-out error"),
    *("gap to exact KRR", "gap of the exact-arithmetic twin"),
]


def construct(solver: str, kernel: ik.Kernel, ridge: float, steps: int, task: ik.Task) -> tuple:
    """The construction with ReLU tables of all operands, and its twin with exact arithmetic."""
    options: dict[str, Any] = {"num_features": 2, "ridge": ridge, "steps": steps}
    if solver != "richardson":
        options["attention"] = ik.Softmax(log_sink=ik.theory.log_sink(kernel, task))
    if solver == "chebyshev":
        options["spectrum"] = ik.spectral_bounds(kernel, task, ridge=ridge)
    build = getattr(ik.constructions, solver)
    twin = build(kernel, **options)
    return build(kernel, **options, arithmetic=ik.ReLU(WIDTH, ik.operand_bounds(twin, task))), twin


def run(t5: T5, folder: str, task: ik.Task) -> tuple[Any, Any]:
    import torch  # pyright: ignore[reportMissingImports]
    from transformers import T5EncoderModel  # pyright: ignore[reportMissingImports]

    network = T5EncoderModel.from_pretrained(folder)
    with torch.no_grad():
        outputs = network(inputs_embeds=torch.tensor(t5.embed(task)), output_hidden_states=True)
    return network.config, [state[0].numpy() for state in outputs.hidden_states]


def lines() -> Iterator[list[str]]:
    for solver, kernel, ridge, steps in CASES:
        for dtype in ("float64", "float32"):
            with jax.enable_x64(dtype == "float64"):
                task = ik.tasks.sample(jax.random.key(SEED), PROCESS)
                model, twin = construct(solver, kernel, ridge, steps, task)
                ours, cache = ik.run_with_cache(
                    model, task, names=(), points=("resid_pre", "resid_post")
                )
                with tempfile.TemporaryDirectory() as folder:
                    t5 = to_t5(folder, model)
                    config, states = run(t5, folder, task)
                last = model.depth - 1
                path = [cache[f"blocks.{i}.resid_pre"] for i in range(model.depth)]
                path.append(cache[f"blocks.{last}.resid_post"])
                errors = {
                    slot: [
                        worst(t5.slot(s, slot), p[slot]) for s, p in zip(states, path, strict=True)
                    ]
                    for slot in model.layout.names
                }
                slot = max(errors, key=lambda name: max(errors[name]))
                layer = int(np.argmax(errors[slot]))
                exact = ik.solvers.exact(kernel, task, ridge=ridge).prediction
                answer = t5.read_out(states[-1][None], task)
                gaps = worst(answer, exact), worst(ik.predict(twin, task), exact)
                sizes = config.num_layers, config.d_model, config.d_kv, config.d_ff
                yield [
                    *(f"{solver}, {type(kernel).__name__}", str(steps), *map(str, sizes), dtype),
                    f"{errors[slot][layer]:.1e} ({slot}, layer {layer})",
                    f"{max(errors['alpha']):.1e}",
                    f"{worst(answer, ours):.1e}",
                    *(f"{gap:.1e}" for gap in gaps),
                ]


def main() -> None:
    table = to_markdown((HEADER, [*lines()]))
    versions = listed({name: version(name) for name in ("transformers", "torch", "jax")})
    device = jax.devices()[0].platform
    print(f"{table}\nSeed {SEED}, device {device}, {versions}, {WIDTH} segments per table.")
    replace(RESULTS / "export.md", table.encode())


if __name__ == "__main__":
    main()
