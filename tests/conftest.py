import jax
import pytest
from jaxtyping import install_import_hook

# The shapes that annotations state are checked here at run time. Rooms that refuse bad input
# with a sentence of their own are left out: it would not be reached.
install_import_hook("icl_krr.transformer.attention", "beartype.beartype")


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
    """Compiled programs map memory that Linux limits in number: too many end in a crash."""
    yield
    jax.clear_caches()


@pytest.fixture
def x64():
    """Double precision for one test, switched back after it."""
    with jax.enable_x64(True):
        yield
