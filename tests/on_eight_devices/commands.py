"""Commands over two, four and eight devices: `tests/test_devices.py` runs this file on them."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from helpers import TRAIN, relative

from icl_krr._core.files import from_csv
from icl_krr.cli import main
from icl_krr.training import _step, advance

MESH = ["--mesh", f"tasks={jax.device_count()}"]
STEPS = ["--training.steps=100", "--training.log-every=100", "--training.batch=64"]
COMMANDS = {
    "identify": "identify linear --tasks 8 --probe-tasks 16 --kernels linear --seeds 1",
    "fit": "fit linear --tasks 8 --iterations 3 --steps 2",
    "ablate": "ablate linear --tasks 8",
}


def test_training(tmp_path, monkeypatch):
    """A hundred steps in flight, as in a loop of one's own: XLA has threads for all of them."""
    monkeypatch.setattr("icl_krr.training._step.wait_for_virtual_devices", lambda array: None)
    assert main([*TRAIN, str(tmp_path / "out"), *STEPS, *MESH]) == 0


def test_a_sweep_has_the_same_rows(tmp_path):
    sweep = "sweep ridge --lines chebyshev --values 0.1 1 2 --seeds 1 --steps 3 --num-supports 6"

    def gaps(folder, mesh=()):
        assert main([*sweep.split(), "--out", str(folder), *mesh]) == 0
        return [row["gap"] for row in from_csv(folder / "results.csv")]

    one, several = gaps(tmp_path / "one"), gaps(tmp_path / "all", MESH)
    assert (len(one), relative(several, one) < 1e-5) == (12, True)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command(name, tmp_path):
    assert main([*COMMANDS[name].split(), "--out", str(tmp_path / "out"), *MESH]) == 0


def test_a_step_waits_for_the_one_before(monkeypatch):
    """A program that starts JAX before it imports icl_krr has too few threads for many steps."""
    monkeypatch.setattr(_step, "state_after", lambda *given: given)
    grow = jax.jit(lambda x: jax.lax.fori_loop(0, 100, lambda _, x: jnp.tanh(x @ x), x))
    with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("tasks",))):
        late = grow(jax.device_put(jnp.eye(250), jax.P()))
        assert not late.is_ready()
        advance(SimpleNamespace(step=late), None, None)
        assert late.is_ready()
