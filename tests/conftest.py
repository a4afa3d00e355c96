import jax
import pytest


@pytest.fixture
def x64():
    """Double precision for one test, switched back after it."""
    with jax.enable_x64(True):
        yield
