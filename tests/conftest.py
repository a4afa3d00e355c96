import gc
import os
import shutil
import tempfile
from pathlib import Path

from xla_flags import DEVICES, QUICK

# Most of the time is compilation. The commands that .ci/run runs as a user does take no flags.
os.environ.setdefault("XLA_FLAGS", QUICK)

# Matrices are small, workers take all cores, and LAPACK's threads spin while they wait for a core.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import optax
import pytest
from jaxtyping import install_import_hook

# The shapes that annotations state are checked here at run time. Rooms that refuse bad input
# with a sentence of their own are left out: it would not be reached.
install_import_hook("icl_krr.transformer._attention", "beartype.beartype")


MAPS = Path("/proc/self/maps")

# tests/test_devices.py starts these in a process with as many devices
collect_ignore_glob = [] if DEVICES in os.environ["XLA_FLAGS"] else ["on_eight_devices/*"]


def pytest_configure(config):
    """What one test, worker or command has compiled, no other compiles again."""
    gc.set_threshold(50_000, 50, 50)  # tracing makes many objects and few cycles
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="icl-krr-tests-")
        config.add_cleanup(folder.cleanup)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder.name
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_traceback_in_locations_limit", 0)
    # many tests make a result that is not right on purpose
    config.addinivalue_line("filterwarnings", "ignore::icl_krr.StatusWarning")
    compile_quickly(True)
    # shapes and dtypes are made to fit where that is meant, and nowhere by accident
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    for name in ("adam", "adamw", "lbfgs"):
        setattr(optax, name, promoting(getattr(optax, name)))


DAILY = {
    f"icl_krr.{name}"
    for name in (
        *("_audit.audit", "tabular._estimator.InContextRegressor", "export._t5.open_t5", "probes"),
        *("probes._changing.interventions.ablate", "probes._changing.interventions.patch"),
        *("probes._changing.slots.transplant", "probes._naming.candidate_fit.fit_candidate"),
        *("probes._naming.identify.agreement", "probes._naming.identify.identify"),
        "probes._naming.identify.identify_arrays",
        "probes._naming.stream_identify.identify_streams",
        *("probes._reading.hyperparameters.effective", "probes._reading.influence.influence"),
        *("probes._reading.readouts.fit_probe", "probes._reading.readouts.streams", "_core.status"),
        *("tasks._batches.map_tasks", "training", "training._adapt.adapt", "training._loop.train"),
        *("training._objectives.marginal_likelihood", "training._step.advance", "transformer"),
        *("transformer._run_plan.memory", "transformer._readouts.predictive"),
    )
}
"""Examples of docstrings that take more than a second, of functions that other tests call."""


def pytest_collection_modifyitems(items):
    """Long examples are slow tests; those that need PyTorch are run by tests/test_gpt2.py alone."""
    for item in items:
        if item.name in DAILY:
            item.add_marker(pytest.mark.slow)
        examples = getattr(getattr(item, "dtest", None), "examples", ())
        if any("import torch" in example.source for example in examples):
            item.add_marker(pytest.mark.skip("tests/test_gpt2.py runs it, if there is torch"))


def pytest_collection_finish():
    """What was imported and collected stays: the collector of garbage need not look at it."""
    gc.freeze()


def pytest_sessionfinish():
    """The process ends: the garbage collector need not run again."""
    gc.freeze()


def promoting(make):
    """Optax's optimisers promote: they raise floats to integer counts. What calls them does not."""

    def made(*args, **options):
        optimiser = make(*args, **options)
        return optimiser._replace(update=jax.numpy_dtype_promotion("standard")(optimiser.update))

    return made


def compile_quickly(quick):
    """Here and in the commands that a test starts."""
    for option, value in (
        ("jax_disable_most_optimizations", quick),
        ("jax_persistent_cache_min_compile_time_secs", 0.0 if quick else 1e9),
    ):
        jax.config.update(option, value)
        os.environ.pop(option.upper(), None)
        if quick:
            os.environ[option.upper()] = str(value)


@pytest.fixture(scope="module", autouse=True)
def few_maps():
    """Compiled programs map memory, and Linux limits the number of maps.

    A worker that kept the programs of all tests would crash, and hold several GiB.
    """
    yield
    if MAPS.exists() and len(MAPS.read_text().splitlines()) > 50_000:
        jax.clear_caches()


@pytest.fixture
def programs():
    """The names of the programs that JAX compiles during a test, also where a file has them."""
    names = []

    def listen(event, _, fun_name="", **rest):
        if event.endswith("backend_compile_duration"):
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture
def compiles_nothing(programs):
    """For tests of what is refused."""
    yield
    assert programs == []


@pytest.fixture
def compiled_as_users_do():
    """For tests of the time and memory of compiled programs, and of where they are kept."""
    compile_quickly(False)
    yield
    compile_quickly(True)


@pytest.fixture
def x64():
    """Double precision for one test, switched back after it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def browser():
    """Chromium, headless; these tests are skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    found = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    path = os.environ.get("CHROMIUM") or next(filter(None, found), None)
    if path is None:
        pytest.skip("needs Chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()
