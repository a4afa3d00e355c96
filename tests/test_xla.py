"""The flag without which some versions of jaxlib return wrong numbers, and the threads of XLA."""

import os
import subprocess
import sys
from importlib.metadata import version
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from scipy.spatial.distance import cdist

import icl_krr as ik
from icl_krr._core import xla_flags


@pytest.mark.parametrize(("double", "supports"), [(True, 2000), (False, 4000)])
def test_a_sum_over_a_large_product_is_right(double, supports):
    """Without the flag, all values are wrong by 0.1 in jaxlib 0.10.2."""
    x, z = np.random.default_rng(0).uniform(size=(2, supports, 10))
    widths = np.linspace(1, 100, 10)
    with jax.enable_x64(double):
        values = ik.Gaussian(1.0, np.diag(1 / widths))(x[:500], z)
    right = np.exp(-cdist(x[:500] / widths, z / widths, "sqeuclidean") / 2)
    np.testing.assert_allclose(values, right, rtol=1e-5)


@pytest.fixture
def needed(monkeypatch):
    monkeypatch.setattr(xla_flags, "WRONG_VERSIONS", (version("jaxlib"),))
    monkeypatch.setattr(xla_flags, "_WARNINGS", set())


AFTER_THE_IMPORT = """
import os, numpy as np, icl_krr as ik
from icl_krr._core import xla_flags
xla_flags.WRONG_VERSIONS = (xla_flags.version('jaxlib'),)
os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=2'
ik.Gaussian()(np.ones((1, 1)), np.ones((1, 1)))
print(os.environ['XLA_FLAGS'])
"""


def test_flags_that_a_user_sets_after_the_import_stay():
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    command = [sys.executable, "-W", "error", "-c", AFTER_THE_IMPORT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    flags = f"--xla_force_host_platform_device_count=2 {xla_flags.FLAG}=-reduce"
    assert done.stdout.strip() == flags


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--some_flag=1", "JAX has read its flags before icl_krr could"),
        ("flags.txt", "XLA_FLAGS is a file; add the line --xla_cpu_exp"),
    ],
)
def test_what_cannot_be_mended_is_told_once(needed, monkeypatch, flags, message):
    monkeypatch.setenv("XLA_FLAGS", flags)
    with pytest.warns(RuntimeWarning, match=f"^jaxlib .* {message}"):
        xla_flags.disable_wrong_fusion()
    xla_flags.disable_wrong_fusion()
    assert os.environ["XLA_FLAGS"] == flags


def test_the_flag_of_a_user_stays(needed, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--other=1 {xla_flags.FLAG}=+reduce")
    xla_flags.disable_wrong_fusion()
    assert os.environ["XLA_FLAGS"] == f"--other=1 {xla_flags.FLAG}=+reduce"
    assert xla_flags.user_flags() == ["--other=1"]


@pytest.mark.parametrize(
    ("flags", "option", "given", "threads"),
    [
        ("--xla_force_host_platform_device_count=4 --other=1", -1, None, 8),
        ("", 3, "5", 6),
        ("--xla_force_host_platform_device_count=2", -1, "9", 9),
        ("--other=8", -1, None, None),
    ],
)
def test_several_devices_of_a_cpu_have_two_threads_each(monkeypatch, flags, option, given, threads):
    config = SimpleNamespace(jax_num_cpu_devices=option)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(config=config))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.delenv(xla_flags.THREADS, raising=False)
    if given:
        monkeypatch.setenv(xla_flags.THREADS, given)
    monkeypatch.setenv("XLA_FLAGS", flags)
    xla_flags.start_enough_threads()
    assert os.environ.get(xla_flags.THREADS) == (threads and str(threads))
