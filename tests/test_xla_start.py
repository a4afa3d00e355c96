"""Versions of jaxlib that return wrong numbers, and the threads of XLA."""

import os
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from scipy.spatial.distance import cdist

import icl_krr as ik
from icl_krr._core import xla_start

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(("double", "supports"), [(True, 2000), (False, 4000)])
def test_a_sum_over_a_large_product_is_right(double, supports):
    """In jaxlib 0.10.2, all values are wrong by 0.1."""
    x, z = np.random.default_rng(0).uniform(size=(2, supports, 10))
    widths = np.linspace(1, 100, 10)
    with jax.enable_x64(double):
        values = ik.Gaussian(1.0, np.diag(1 / widths))(x[:500], z)
    right = np.exp(-cdist(x[:500] / widths, z / widths, "sqeuclidean") / 2)
    np.testing.assert_allclose(values, right, rtol=1e-5)


def test_versions_that_are_wrong_are_excluded_and_warned_of(monkeypatch):
    excluded = ",".join(f"!={wrong}" for wrong in xla_start.WRONG_VERSIONS)
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {f"jax>=0.10,{excluded}", f"jaxlib>=0.10,{excluded}"} <= {*packages}
    xla_start.warn_of_wrong_version()
    monkeypatch.setattr(xla_start, "WRONG_VERSIONS", (version("jaxlib"),))
    with pytest.warns(
        RuntimeWarning, match=f'^jaxlib .* a CPU; pip install "jax{excluded}" "jaxlib'
    ):
        xla_start.warn_of_wrong_version()


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
    monkeypatch.delenv(xla_start.THREADS, raising=False)
    if given:
        monkeypatch.setenv(xla_start.THREADS, given)
    monkeypatch.setenv("XLA_FLAGS", flags)
    xla_start.start_enough_threads()
    assert os.environ.get(xla_start.THREADS) == (threads and str(threads))
