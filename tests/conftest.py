import jax
import pytest
from jaxtyping import install_import_hook

# The shapes that annotations state are checked here at run time. Rooms that refuse bad input
# with a sentence of their own are left out: it would not be reached.
install_import_hook("icl_krr.transformer.attention", "beartype.beartype")


@pytest.fixture
def x64():
    """Double precision for one test, switched back after it."""
    with jax.enable_x64(True):
        yield
