"""Programs for a GPU and a TPU, lowered on any machine: they need no host and no CPU.

`test_lowering.txt` has one call per line, of the names of this file. Lines that begin with "slow"
are slow tests: what runs always has an operation, a loop or a gradient whose program for a GPU or a
TPU no other line has.
"""

import dataclasses
import inspect
import re
from functools import cache, partial  # noqa: F401
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax  # noqa: F401
import pytest
from helpers import CASES, EXPONENTIAL, draw, in_tiles, often, parametrize  # noqa: F401
from jax.tree_util import Partial

import icl_krr as ik
from icl_krr.catalogue import SOLVERS, taken
from icl_krr.kernels import make_kernel
from icl_krr.probes._naming import candidate_fit, distances  # noqa: F401
from icl_krr.probes._reading import filters, hyperparameters  # noqa: F401
from icl_krr.tabular import keywords
from icl_krr.training._adapt import compiled_step
from icl_krr.transformer._evaluate import embed_task  # noqa: F401

ON_DEVICES = re.compile(r"cusolver_\w+|Eigh|Qr|ProductOf\w+Reflectors|AllocateBuffer")
"""Library calls of a GPU and of a TPU, and memory without values (newer versions of JAX)."""

TO_THE_HOST = re.compile(r"stablehlo\.(send|recv|infeed|outfeed)\b")
IN_FLOAT64 = re.compile(r"\dxf64|stablehlo\.(?!constant|convert).*<f64>")
"""Scalars of Python may be float64 constants until they are converted."""

LINES = Path(__file__).with_suffix(".txt").read_text().splitlines()
CALLS = [line.rpartition("slow ")[1:] for line in LINES]
OF_A_MODEL = re.compile(
    r"(ik\.(predict|run_with)|jax\.(grad|jacobian)).*\b(cg|softmax|tiled|encoder|(long_)?decoder)\b"
)
NUMERIC = "solvers", "sketches", "tasks", "theory", "residual", "transformer"
ROOMS = (*NUMERIC, "probes", "training", "uncertainty")
ON_THE_HOST = {
    *(ik.tasks.diabetes, ik.tasks.read_queries, ik.tasks.read_table, ik.tasks.split),
    *(ik.residual.join, ik.residual.num_tokens, ik.probes.has_slot, ik.probes.sites),
    *(ik.solver, ik.per_step, ik.compile),
    *(ik.memory, ik.training.check, ik.training.load_weights, ik.training.save_weights),
    *(ik.training.save_half_precision, ik.solvers.lookup),
    *(ik.transformer.step_cost, ik.transformer.step_sent),  # count the operations of a program
    # these read numbers between their compiled programs
    *(ik.training.adapt, ik.training.train, ik.training.reference, ik.probes.identify),
    *(ik.probes.fit_candidate, ik.probes.spectral_filter, ik.probes.effective),
    *(ik.probes.align, ik.probes.weight_difference),
    *(ik.probes.identify_arrays, ik.probes.agreement, ik.probes.prefixes),
    *(ik.probes.read_filter, ik.probes.identify_streams, ik.tasks.shifted),
    *(ik.uncertainty.coverage, ik.uncertainty.uniformity),
    *(ik.theory.budget, ik.probes.round_slots),  # numbers and hooks, not arrays
    ik.probes.array_layer_predictions,  # its purpose is a call of a function of NumPy arrays
    *(ik.probes.torch_arrays, ik.probes.decoder_layer_predictions),
}

QUICK = ("cg-exponential", "ric-gaussian")
QUICK_ORACLES = "conjugate_gradient nystrom_conjugate_gradient nadaraya_watson bayesian_average"
GAUSSIAN = ik.Gaussian(1.5)
SIZES = {"num_features": 4, "width": 8, "depth": 2, "heads": 2}
ENCODER = ik.Architecture(**SIZES)
LINEAR_ENCODER = ik.Architecture(**SIZES, attention="linear", hidden=0, layer_norm=False)
DECODER = ik.Architecture(**SIZES, causal=True, tokens="interleaved", max_tokens=32)


@pytest.fixture(scope="module", autouse=True)
def other_machine():
    """The library takes a few choices by the platform: those of a machine with a GPU are tested.

    JAX keeps traces apart by its settings, so that under one of their own no trace with the choices
    for a CPU is found, and none is left behind. Warnings are errors here as well.
    """
    with pytest.MonkeyPatch.context() as patch, jax.numpy_rank_promotion("warn"):
        patch.setattr(jax, "default_backend", lambda: "gpu")
        yield


def build(ridge):
    return ik.constructions.conjugate_gradient(GAUSSIAN, num_features=4, ridge=ridge, steps=3)


def squares(model, task):
    return jnp.sum(ik.predict(model, task) ** 2)


def double(value, where):
    return 2 * value


def fitting_step(optimiser, ridge, task):
    loss = Partial(lambda task, ridge: squares(build(ridge), task), task)
    return compiled_step((), optimiser)(ridge, optimiser.init(ridge), loss)


LINEAR = ik.Linear()
PROJECTED = ik.Gaussian(1.5, projection=np.eye(2, 4, dtype="f4"))
FAMILY = ik.tasks.LinearRegression(num_features=4, num_supports=7)
SETTINGS = ik.training.Training(batch=4)
EVERY = ik.training.Training(batch=4, loss="every")
UNSURE = dataclasses.replace(DECODER, variance=True)


@cache
def inputs():
    """Shapes of the arrays that a call may name, in float32."""
    return jax.tree.map(in_float32, jax.eval_shape(arrays, draw(0)))


def arrays(task):
    key = jax.random.key(0)
    softmax, decoder = CASES["cg-exponential"].build(task, 0.5, 3), ik.init(key, DECODER)
    return {
        "task": task,
        "tasks": jax.tree.map(lambda leaf: jnp.stack([leaf] * 4), task),
        "ridge": jnp.ones(()),
        "unsure": ik.Predictive(*[jnp.ones((7, 2))] * 3),
        "hats": jnp.ones((4, 2, 3, 7)),
        "cg": CASES["cg"].build(task, 0.5, 3),
        "softmax": softmax,
        "tiled": in_tiles(softmax),
        "encoder": ik.init(key, ENCODER),
        "linear_encoder": ik.init(key, LINEAR_ENCODER),
        "decoder": decoder,
        "long_decoder": in_tiles(decoder),
    }


def in_float32(leaf):
    floating = jnp.issubdtype(leaf.dtype, jnp.floating)
    return jax.ShapeDtypeStruct(leaf.shape, jnp.float32 if floating else leaf.dtype)


def lowered(function, *shapes):
    """The text of the program for a GPU and for a TPU: where they differ, it has both."""

    @jax.jit
    def program(*given):
        return [leaf for leaf in jax.tree.leaves(function(*given)) if isinstance(leaf, jax.Array)]

    return jax.export.export(program, platforms=("cuda", "tpu"))(*shapes).mlir_module()


def check(text):
    called = set(re.findall(r"custom_call @(\w+)", text))
    assert {name for name in called if not ON_DEVICES.fullmatch(name)} == set()
    assert TO_THE_HOST.findall(text) == []
    assert IN_FLOAT64.findall(text) == []


def check_call(call):
    named = {name: inputs()[name] for name in re.findall(r"\w+", call) if name in inputs()}
    run = lambda given: eval(call, globals() | given | {"key": jax.random.key(0)})  # noqa: E731
    check(lowered(run, named))


@often("call", [call for slow, call in CALLS if not slow], [call for _, call in CALLS])
def test_a_call_lowers_for_gpu_and_tpu(call):
    check_call(call)


@often("name", QUICK_ORACLES.split(), SOLVERS)
def test_an_oracle_lowers(name):
    row, kernel = SOLVERS[name], make_kernel(taken(name, usual=True)[-1], {})

    def solve(task, ridge):
        return ik.solvers.lookup(row)(kernel, task, **keywords(row, kernel, task, ridge, 3))

    check(lowered(solve, inputs()["task"], inputs()["ridge"]))


@parametrize(CASES, QUICK)
def test_a_construction_and_its_gradient_lower(case):
    def loss(ridge, task):
        return squares(case.build(task, ridge, 3), task)

    check(lowered(jax.value_and_grad(loss, argnums=(0, 1)), inputs()["ridge"], inputs()["task"]))


MODELS = [call for _, call in CALLS if OF_A_MODEL.match(call)]


@often("call", [*filter(re.compile(r"ik\.predict\((softmax|encoder),").match, MODELS)], MODELS)
def test_a_float32_model_stays_in_float32_where_jax_has_float64(call, x64):
    check_call(call)


def test_no_file_calls_the_host_or_what_a_cpu_alone_computes():
    """But for models of NumPy; so a call whose line is slow cannot be the only one that does."""
    words = r"\b(pure_callback|io_callback|jax\.debug|linalg\.(eig|eigvals|schur|sqrtm|funm))\b"
    files = Path(ik.__file__).parent.rglob("*.py")
    assert {path.stem for path in files if re.search(words, path.read_text())} == {"arrays"}


def test_no_public_function_is_left_out():
    named = {eval(path) for _, call in CALLS for path in re.findall(r"\bik(?:\.[a-z]\w*)+", call)}
    named |= ON_THE_HOST | {ik.solvers.lookup(row) for row in SOLVERS.values()}
    rooms = [ik, *(getattr(ik, name) for name in ROOMS)]
    public = [getattr(room, name) for room in rooms for name in room.__all__]
    functions = {one for one in public if inspect.isfunction(inspect.unwrap(one))}
    assert {one.__qualname__ for one in functions - named} == set()
