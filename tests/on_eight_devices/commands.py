"""Commands over two, four and eight devices: `tests/test_devices.py` runs this file on them."""

import jax
from helpers import TRAIN, often

import icl_krr as ik
from icl_krr.cli import main
from icl_krr.training import Training, advance, start

MESH = ["--mesh", f"tasks={jax.device_count()}"]
STEPS = ["--training.steps=300", "--training.log-every=300", "--training.batch=64"]
COMMANDS = {
    "sweep": "sweep width --values 4 8 --seeds 2 --steps 3",
    "identify": "identify linear --tasks 8 --probe-tasks 16 --kernels linear --seeds 1",
    "fit": "fit linear --tasks 8 --iterations 3 --steps 2",
    "ablate": "ablate linear --tasks 8",
}


def test_training(tmp_path, monkeypatch):
    """Hundreds of steps in flight, as in a loop of one's own: XLA has threads for all of them."""
    monkeypatch.setattr("icl_krr.training._step.wait_for_virtual_devices", lambda array: None)
    assert main([*TRAIN, str(tmp_path / "out"), *STEPS, *MESH]) == 0


@often("name", ("sweep",), COMMANDS)
def test_a_command(name, tmp_path):
    assert main([*COMMANDS[name].split(), "--out", str(tmp_path / "out"), *MESH]) == 0


def test_a_step_waits_for_the_one_before():
    """A program that starts JAX before it imports icl_krr has too few threads for many steps."""
    family = ik.tasks.LinearRegression(num_features=2, num_supports=64)
    spec = ik.Architecture(num_features=2, width=8, depth=1, heads=1)
    settings = Training(batch=512)
    with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("tasks",))):
        state, before = advance(start(ik.init(jax.random.key(0), spec), settings), family, settings)
        for _ in range(3):
            state, loss = advance(state, family, settings)
            assert before.is_ready()
            before = loss
