"""One trace for a sweep; compile time and program size constant in depth."""

import json
import os
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES, KINDS, cg, draw
from jax.extend.core import Literal, jaxprs_in_params

import icl_krr as ik
from benchmarks.operations import RESULT
from icl_krr.residual import key_mask
from icl_krr.transformer import forward
from icl_krr.transformer._evaluate import embed_task

pytestmark = pytest.mark.usefixtures("compiled_as_users_do")


def test_one_trace_for_a_sweep_over_ridge_temperature_and_data():
    @jax.jit
    @chex.assert_max_traces(n=1)
    def predict(ridge, kernel, task):
        model = ik.constructions.nadaraya_watson(kernel, num_features=4)
        exact = ik.solvers.exact(kernel, task, ridge=ridge).prediction
        return ik.predict(cg(task, ridge, 4), task), ik.predict(model, task), exact

    settings = zip((0.1, 1.0, 5.0), map(ik.Exponential, (0.5, 1.0, 2.0)), strict=True)
    predictions = [predict(*setting, draw(seed)) for seed in range(3) for setting in settings]
    for values in zip(*predictions, strict=True):
        assert len({float(np.asarray(value)[0]) for value in values}) == len(predictions)


def test_models_built_anew_reuse_the_compiled_forward():
    """Outside of jit as well: a new ridge is a new leaf, not a new program."""
    chex.clear_trace_counter()
    counted = jax.jit(chex.assert_max_traces(lambda model, task: ik.predict(model, task), n=1))
    for ridge in (0.1, 1.0, jnp.float32(2.0), np.float32(3.0)):
        counted(cg(draw(0), ridge, 4), draw(0))


def test_a_sweep_is_one_vmap():
    task = draw(0)
    ridges = np.array([0.1, 1.0, 5.0], np.float32)
    predict = lambda ridge: ik.predict(cg(task, ridge, 4), task)  # noqa: E731
    swept = jax.jit(jax.vmap(predict))(ridges)
    assert np.allclose(swept, np.stack([*map(predict, ridges)]), rtol=1e-3, atol=1e-4)


def test_differences_of_points_are_not_stored():
    """Neither forward nor in the gradient: they would take n^2 p numbers."""
    x, kernel = jax.ShapeDtypeStruct((1000, 16), jnp.float32), ik.Gaussian()
    for function in (kernel, jax.grad(lambda x, z: jnp.sum(kernel(x, z)), argnums=(0, 1))):
        memory = jax.jit(function).lower(x, x).compile().memory_analysis()
        assert memory.temp_size_in_bytes < 4 * 4 * 1000**2


def constant_sums(jaxpr, constant):
    """Sums of which no argument depends on the arguments of the program: XLA folds them."""
    known = {var for var, flag in zip(jaxpr.invars, constant, strict=True) if flag}
    known.update(jaxpr.constvars)
    for equation in jaxpr.eqns:
        flags = [isinstance(var, Literal) or var in known for var in equation.invars]
        for inner in jaxprs_in_params(equation.params):
            yield from constant_sums(inner, flags[: len(inner.invars)])
        if all(flags):
            known.update(equation.outvars)
            if equation.primitive.name in ("cumsum", "reduce_sum"):
                yield equation


@pytest.mark.parametrize(("causal", "tokens"), [(False, "pairs"), (True, "interleaved")])
def test_what_follows_from_the_number_of_tokens_alone_is_not_left_to_the_compiler(causal, tokens):
    """XLA took minutes for sums of the key mask, while it folded constants: 300,000 supports."""
    options = {"causal": causal, "inclusive": causal, "tokens": tokens}
    one = ik.Architecture(num_features=4, width=8, depth=1, heads=1, **options)
    trained = jax.eval_shape(lambda: ik.init(jax.random.key(0), one))
    task = ik.Task(*(np.zeros(shape, "f4") for shape in ((3000, 4), 3000, (1, 4))))
    built = [CASES[name].build(draw(0), 0.5, 2) for name in ("ric-gaussian", "cg-exponential")]
    for model in (trained, *built):
        program = jax.make_jaxpr(ik.predict)(model, task).jaxpr
        assert [*constant_sums(program, [False] * len(program.invars))] == []


def lower(model, task):
    stream = jax.eval_shape(lambda: embed_task(model, task))
    return jax.jit(lambda m, h: forward(m, h, key_mask(task)).stream).lower(model, stream)


@pytest.mark.parametrize("name", KINDS[:-1])
def test_the_program_does_not_grow_with_depth(name):
    task = draw(0)
    lines = set()
    for steps in (8, 256):
        model = CASES[name].build(task, 0.1, steps)
        assert model.steps == steps
        lines.add(len(lower(model, task).as_text().splitlines()))
    assert len(lines) == 1


def test_neither_the_compiled_program_nor_its_memory_grows_with_depth():
    """Weights aside, the forward of 256 steps needs the scratch of 8: no stream is stored.

    As many instructions: the compiler unrolls no loop, so it takes no longer.
    """
    task = draw(0, n=64)
    sizes, instructions = [], []
    for steps in (8, 256):
        compiled = lower(cg(task, 0.1, steps), task).compile()
        sizes.append(compiled.memory_analysis().temp_size_in_bytes)
        instructions.append(compiled.as_text().count(" = "))
    assert instructions[0] == instructions[1] > 50
    stream = 4 * (1 + 64 + 3) * cg(task, 0.1, 8).layout.width
    assert sizes[1] < sizes[0] + 4 * stream


RECORD = json.loads(RESULT.read_text())
COUNT = """
import json, sys
from benchmarks.operations import operations
print(json.dumps({case: sum(operations(case).values()) for case in sys.argv[1:]}))
"""
QUICK = [f"{a}, {s}" for a in ("linear", "softmax") for s in ("chebyshev", "conjugate_gradient")]


@pytest.mark.skipif(
    RECORD["meta"]["versions"]["jax"] != jax.__version__ or jax.default_backend() != "cpu",
    reason="another compiler makes other operations",
)
@pytest.mark.parametrize(
    "cases", [QUICK, pytest.param([*RECORD["now"]], marks=pytest.mark.slow)], ids=["quick", "all"]
)
def test_a_step_compiles_to_no_more_operations_than_recorded(cases):
    """A carried scratch slot, a literal erasure or a transposed batch adds some.

    In a process that compiles as users do: the flags of the tests make other operations.
    """
    ours = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    command = [sys.executable, "-c", COUNT, *cases]
    counts = json.loads(subprocess.check_output(command, env=environment, text=True))
    for case in cases:
        assert counts[case] <= sum(RECORD["now"][case].values()), case
