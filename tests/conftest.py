from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

# The shapes that annotations state are checked here at run time. Rooms that refuse bad input
# with a sentence of their own are left out: it would not be reached.
install_import_hook("icl_krr.transformer.attention", "beartype.beartype")


AS_USERS_COMPILE = {"test_bench", "test_cli", "test_compilation", "test_streaming"}
MAPS = Path("/proc/self/maps")


@pytest.fixture(scope="module", autouse=True)
def programs(request):
    """Where it is not compilation that is tested, less of it: it takes most of the time.

    Compiled programs map memory, and Linux limits the number of maps: a worker that kept the
    programs of all tests would crash.
    """
    quick = request.module.__name__ not in AS_USERS_COMPILE
    jax.config.update("jax_disable_most_optimizations", quick)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    if MAPS.exists() and len(MAPS.read_text().splitlines()) > 25_000:
        jax.clear_caches()


@pytest.fixture
def x64():
    """Double precision for one test, switched back after it."""
    with jax.enable_x64(True):
        yield
