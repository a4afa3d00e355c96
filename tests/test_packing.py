"""The scheduler wastes no block and refuses what does not fit; test_compiler runs what it packs."""

import jax.numpy as jnp
import numpy as np
import pytest

import icl_krr as ik
from icl_krr.constructions import machine
from icl_krr.constructions._assembly.packing import Operation, pack
from icl_krr.residual import Layout, Read, Slot
from icl_krr.transformer import Block, Heads, Spec, Unit, Write
from icl_krr.transformer._block import run_block
from icl_krr.transformer._hook_points import HookPoints

SPEC = Spec(num_features=1, attention="linear")


def read(slot, scale=1.0):
    return Read({slot: jnp.asarray(scale)}, 1)


def head(slot, to):
    return Operation((Heads(read(slot), read(slot), (Write(read(slot), None, to),)),))


def unit(slot, to, scale=1.0, erases=False):
    return Operation((Unit(read(slot, scale), None, None, to),), erases=erases)


def test_independent_operations_share_a_block():
    (block,) = pack([head("a", "b"), unit("b", "c"), head("a", "d")])
    assert (len(block.attention), len(block.mlp)) == (2, 1)
    assert pack([]) == ()


def test_what_reads_a_write_comes_after_it():
    assert len(pack([head("a", "b"), head("b", "c")])) == 2


def test_an_erased_slot_is_written_in_a_later_sublayer():
    """Else (new - old) + old is rounded with the old value's size."""
    assert len(pack([unit("a", "a", -1.0, erases=True), unit("b", "a")])) == 2


def test_a_program_is_checked_against_the_layout():
    m = machine(ik.Linear(), 2, num_outputs=3)
    alpha = m.state("alpha", ("support",), "three channels")
    other = Layout((Slot("nosuch", 3),)).read("nosuch")
    with pytest.raises(ValueError, match="slot alpha must be written with width 3, got 1"):
        m.add(m.support, to=alpha)
    for reads in ((other, alpha), (alpha, other)):
        with pytest.raises(ValueError, match=r"slot must be one of 'x', .*, got 'nosuch'"):
            m.add(reads[0], to=reads[1])
    with pytest.raises(ValueError, match="to be multiplied, got 3 for alpha and 2 for x"):
        m.divide(alpha, m.x, to="quotient")
    queries = m.state("queries", ("query",), "three channels")
    with pytest.raises(ValueError, match="slot queries must include support, where the result"):
        m.head(query=alpha, key=alpha, value=alpha, to=queries)
    with pytest.raises(ValueError, match="slot queries must include support, where the result"):
        m.multiply(alpha, alpha, to=queries)
    with pytest.raises(ValueError, match="got 'alpha', the name of a state slot; pass its read"):
        m.add(alpha, to="alpha")
    assert [m.add(alpha, to="beta").slot for _ in range(2)] == ["beta", "beta_"]
    with pytest.raises(TypeError, match=r"value must be a read or a product from .*, got float"):
        m.add(1.0, to="one_more")
    with pytest.raises(TypeError, match="readout must be a read, got NoneType"):
        m.transformer(lambda: None, steps=1, readout=None)
    with pytest.raises(ValueError, match="readout must be nonzero at queries, got slot alpha at"):
        m.transformer(lambda: None, steps=1, readout=alpha)


def test_a_product_with_k_is_added_to_a_new_slot():
    m = machine(ik.Exponential(), 2)
    v = m.state("v", ("support",), "vector", starts_as=m.y)
    Kv = m.add(m.kernel_times(v), to="Kv")
    assert m.layout[Kv.slot].at == ("support", "query")
    with pytest.raises(ValueError, match="product from kernel_times must be read by finish or add"):
        m.dot(v, m.kernel_times(v), to="vKv")
    for other in (v, m.kernel_times(v)):
        with pytest.raises(TypeError, match=r"machine's multiply\(a, b, to\) multiplies two reads"):
            v * other


def test_weights_that_do_not_fit_the_stream_are_refused():
    stream = {"a": np.ones((3, 1)), "b": np.ones((3, 2))}
    key_mask = np.ones(3, bool)
    for unit, message in (
        (Unit(read("zz"), None, None, "a"), "slot must be one of 'a', 'b', got 'zz'"),
        (Unit(read("a"), None, None, "zz"), "slot to write must be one of 'a', 'b', got 'zz'"),
        (Unit(read("b"), None, None, "a"), "slot b must have width 1 for this read, got 2"),
        (Unit(read("a"), None, None, "b"), r"slot b must have shape \[3, 2\], got \[3, 1\]"),
    ):
        with pytest.raises(ValueError, match=message):
            run_block(Block(mlp=(unit,)), stream, key_mask, SPEC, HookPoints(), {})
