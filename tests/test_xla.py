"""The flag without which some versions of jaxlib return wrong numbers."""

import os
from importlib.metadata import version

import jax
import numpy as np
import pytest
from scipy.spatial.distance import cdist

import icl_krr as ik
from icl_krr import xla


@pytest.mark.parametrize(("double", "supports"), [(True, 2000), (False, 4000)])
def test_a_sum_over_a_large_product_is_right(double, supports):
    """Without the flag, all values are wrong by 0.1 in jaxlib 0.10.2."""
    x, z = np.random.default_rng(0).uniform(size=(2, supports, 10))
    widths = np.linspace(1, 100, 10)
    with jax.enable_x64(double):
        found = ik.Gaussian(1.0, np.diag(1 / widths))(x[:500], z)
    right = np.exp(-cdist(x[:500] / widths, z / widths, "sqeuclidean") / 2)
    np.testing.assert_allclose(found, right, rtol=1e-5)


def test_the_flag_is_set_once_and_what_a_user_sets_stays(monkeypatch):
    monkeypatch.setattr(xla, "WRONG", (version("jaxlib"),))
    monkeypatch.setenv("XLA_FLAGS", "--some_flag=1")
    with pytest.warns(RuntimeWarning, match="^jaxlib .* import icl_krr before JAX computes"):
        xla.keep_sums_right()
    assert xla.given() == ["--some_flag=1"]
    both = os.environ["XLA_FLAGS"]
    assert both == f"--some_flag=1 {xla.FLAG}=-reduce"
    xla.keep_sums_right()
    assert os.environ["XLA_FLAGS"] == both
