"""What devices send in a step, read from the compiled program."""

import jax
import jax.numpy as jnp
import pytest
from helpers import of_random_weights

import icl_krr as ik
from benchmarks.compiled import collectives, parse, work_of_steps
from icl_krr.tasks._batches import placement
from icl_krr.transformer import Sent, step_sent
from icl_krr.transformer._evaluate import evaluate_batch_sharded, evaluate_sharded

P, STEPS = 3, 13  # the length of no other loop
CONFIG = ik.tasks.LinearRegression(num_features=P, num_supports=83, num_queries=5)
TASK = jax.eval_shape(lambda: ik.tasks.sample(jax.random.key(0), CONFIG))


def cg(kernel, **options):
    sizes = {"num_features": P, "steps": STEPS}
    return ik.constructions.conjugate_gradient(kernel, ridge=0.5, **sizes, **options)


def trained(**options):
    return of_random_weights(num_features=P, width=8, depth=STEPS, heads=2, hidden=8, **options)


MODELS = {
    "linear CG": lambda: cg(ik.Linear()),
    "linear causal decoder": lambda: trained(attention="linear", causal=True),
    "decoder": lambda: trained(causal=True, tokens="interleaved"),
}


def mesh_of(count):
    return jax.make_mesh((count,), ("context",), devices=jax.devices()[:count])


@pytest.mark.parametrize(
    ("name", "gradient", "count"),
    [
        ("linear CG", False, 8),
        *((name, True, 8) for name in MODELS),
        *(("linear causal decoder", False, count) for count in (2, 5)),
    ],
)
def test_a_step_sends_what_the_formula_says_and_never_the_context(name, gradient, count):
    model, place = MODELS[name](), placement(TASK, mesh_of(count))
    run = evaluate_sharded
    if gradient:
        loss = lambda model, task, place: jnp.sum(evaluate_sharded(model, task, place=place)[0])  # noqa: E731
        run = jax.jit(jax.grad(loss), static_argnames="place")
    program = parse(run.lower(model, TASK, place=place).compile().as_text())
    assert collectives(program) <= {"all-reduce", "collective-permute"}
    work, kinds = work_of_steps(program, STEPS), ("all-reduce", "collective-permute")
    sent = Sent(sum(work[kind] for kind in kinds), sum(work[f"{kind} arrays"] for kind in kinds))
    assert sent == step_sent(model, TASK, place, gradient)


def test_the_memory_of_a_divided_run_is_that_of_one_device():
    config = ik.tasks.LinearRegression(num_features=P, num_supports=80_000)
    task = jax.eval_shape(lambda: ik.tasks.sample(jax.random.key(0), config))
    model = cg(ik.Linear())
    one, eight = (ik.memory(model, task, mesh=mesh_of(count)) for count in (1, 8))
    for field, error in {"arguments": 0.01, "peak": 0.1}.items():
        assert abs(getattr(one, field) / (8 * getattr(eight, field)) - 1) < error
    assert 0.9 < one.flops / (8 * eight.flops) < 1.1


def test_a_batch_sends_for_each_task_of_a_device():
    tasks = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((6, *leaf.shape), leaf.dtype), TASK)
    mesh, model = jax.make_mesh((2, 4), ("tasks", "context")), cg(ik.Linear())
    place = placement(tasks, mesh)
    program = parse(evaluate_batch_sharded.lower(model, tasks, 3, place=place).compile().as_text())
    work = work_of_steps(program, STEPS)
    assert work["all-reduce"] == step_sent(model, tasks, place).bytes == 3 * 4 * (P + 5)
    assert work["all-reduce arrays"] == step_sent(model, tasks, place).arrays
