"""The scheduler keeps the meaning of a program and wastes no block."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_krr.constructions.schedule import Operation, schedule
from icl_krr.residual import Read
from icl_krr.transformer.forward import run_block
from icl_krr.transformer.taps import Taps
from icl_krr.transformer.weights import Block, Heads, Spec, Unit, Write

SLOTS = ("a", "b", "c", "d")
SPEC = Spec(num_features=1, attention="linear")


def read(slot, scale=1.0):
    return Read({slot: jnp.asarray(scale)}, 1)


@st.composite
def operations(draw):
    slot, to = draw(st.sampled_from(SLOTS)), draw(st.sampled_from(SLOTS))
    kind = draw(st.sampled_from(["head", "unit", "gated", "erase"]))
    scale = draw(st.sampled_from([-0.5, 0.25, 1.0]))
    if kind == "head":
        query = draw(st.sampled_from(SLOTS))
        layer = Heads(read(query, scale), read(slot), (Write(read(slot), None, to),))
    elif kind == "unit":
        layer = Unit(read(slot, scale), None, None, to)
    elif kind == "gated":
        layer = Unit(read(slot, scale), read(draw(st.sampled_from(SLOTS))), None, to)
    else:
        return Operation(Unit(read(to, -1.0), None, None, to), erases=True)
    return Operation(layer)


def execute(blocks):
    rng = np.random.default_rng(0)
    stream = {slot: jnp.asarray(rng.uniform(-0.5, 0.5, size=(3, 1))) for slot in SLOTS}
    for block in blocks:
        stream = run_block(block, stream, jnp.ones(3, bool), SPEC, Taps())
    return stream


@settings(max_examples=60, deadline=None)
@given(st.lists(operations(), min_size=1, max_size=8))
def test_packed_blocks_mean_what_the_program_means(program):
    one_by_one = []
    for operation in program:
        is_head = isinstance(operation.layer, Heads)
        layers = (operation.layer,)
        one_by_one.append(Block(attention=layers) if is_head else Block(mlp=layers))
    with jax.enable_x64(True):
        slow, fast = execute(one_by_one), execute(schedule(program))
    for slot in SLOTS:
        np.testing.assert_allclose(slow[slot], fast[slot], atol=1e-10)


def test_independent_operations_share_a_block():
    head = Operation(Heads(read("a"), read("a"), (Write(read("a"), None, "b"),)))
    unit = Operation(Unit(read("b"), None, None, "c"))
    other = Operation(Heads(read("a"), read("a"), (Write(read("a"), None, "d"),)))
    blocks = schedule([head, unit, other])
    assert len(blocks) == 1
    assert len(blocks[0].attention) == 2
    assert len(blocks[0].mlp) == 1


def test_what_reads_a_write_comes_after_it():
    head = Operation(Heads(read("a"), read("a"), (Write(read("a"), None, "b"),)))
    after = Operation(Heads(read("b"), read("b"), (Write(read("b"), None, "c"),)))
    assert len(schedule([head, after])) == 2


def test_an_erased_slot_is_written_in_a_later_sublayer():
    """Else (new - old) + old is rounded with the old value's size."""
    erase = Operation(Unit(read("a", -1.0), None, None, "a"), erases=True)
    write = Operation(Unit(read("b"), None, None, "a"))
    assert len(schedule([erase, write])) == 2
    assert schedule([]) == ()
