"""Run the claims over several seeds, side by side."""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from itertools import groupby
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import jax

from ..._core import checks
from ..._core.messages import unknown_name
from .._shared.rows import Rows
from .._study import Cell, Study, one_by_one, run
from .claim import Claim, Config, named
from .result import Record, named_values, summarise


def claims() -> dict[str, Claim]:
    """Return all claims in the order of their numbers."""
    return {name: module.CLAIM for name, module in modules().items()}


def modules() -> dict[str, ModuleType]:
    """Import the module of every claim: the module of C16 is `c16_sketch_error`."""
    files = sorted(Path(__file__).parent.glob("c[0-9][0-9]_*.py"))
    return {f"C{int(f.stem[1:3])}": import_module(f".{f.stem}", __package__) for f in files}


def choose_claims(names: Iterable[str]) -> dict[str, Claim]:
    """Return the claims with these names, or all claims if there are no names."""
    all_claims = claims()
    chosen = [name.upper() for name in names]
    for name in chosen:
        if name not in all_claims:
            raise ValueError(unknown_name("claim", name, all_claims))
    return {name: all_claims[name] for name in chosen} if chosen else all_claims


def verify_all(
    chosen: Mapping[str, Claim],
    *,
    seeds: range,
    quick: bool = False,
    configs: Mapping[str, Config] = MappingProxyType({}),
    folder: Path | None = None,
    progress: Callable[[str, int, int], None] = lambda words, done, total: None,
) -> dict[str, tuple[Record, Rows]]:
    """Run several claims, some with settings in `configs`; on a CPU, one per core at a time.

    A claim with a seed is a cell of a study, which keeps it in the folder (see `study.run`).
    """
    settings = {name: claim.quick if quick else claim.config for name, claim in chosen.items()}
    settings |= configs
    plan = Study(
        "claims",
        {},
        {"claim": chosen, "seed": seeds},
        partial(measure, settings),
        lambda cell: f"{named_values(settings[cell['claim']])} {quick} {surroundings()}",
    )
    alone = len(chosen) == 1 or jax.default_backend() != "cpu"
    cells = run(plan, folder, progress, one_by_one if alone else partial(side_by_side, quick)).cells
    records = {}
    for name, claim in chosen.items():
        by_seed = {cell["seed"]: result for cell, result in cells if cell["claim"] == name}
        rows = [{"seed": seed, **row} for seed, result in by_seed.items() for row in result["rows"]]
        records[name] = summarise(name, claim, settings[name], by_seed), rows
    return records


@cache
def surroundings() -> str:
    """All files of the package as a digest, JAX and the device: with others, claims run again."""
    paths = [path for path in Path(checks.__file__).parent.rglob("*") if path.is_file()]
    code = [path.read_bytes() for path in sorted(paths) if "__pycache__" not in path.parts]
    return f"{sha256(b''.join(code)).hexdigest()} {jax.__version__} {jax.devices()[0].device_kind}"


def measure(settings: Mapping[str, Config], cell: Cell) -> dict[str, Any]:
    """The rows and checks of a claim with one seed, and the time that it took."""
    name, clocks = cell["claim"], (time.perf_counter, time.process_time)
    claim, config = claims()[name], settings[name]
    start = [clock() for clock in clocks]
    with jax.enable_x64(claim.dtype == "float64"):  # pyright: ignore[reportAttributeAccessIssue]
        try:
            rows, by_name = claim.run(config, jax.random.key(cell["seed"]))
            checks = [check._asdict() for check in named(by_name)]
        except (ValueError, TypeError, LookupError, ArithmeticError) as error:
            if config in (claim.config, claim.quick):
                raise
            reason = str(error).partition("\n")[0]
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__} "
            raise ValueError(f"{name} cannot run with these settings: {kind}{reason}") from None
    took = [clock() - began for clock, began in zip(clocks, start, strict=True)]
    return {"rows": rows, "checks": checks, "seconds": took[0], "cpu_seconds": took[1]}


def side_by_side(quick: bool, measure: Callable[[Cell], Any], cells: list[Cell]) -> Iterator[Any]:
    """Measure every cell; all seeds of a claim in one process, which compiles its programs once."""
    waiting = [list(group) for _, group in groupby(cells, lambda cell: cell["claim"])]
    others, jobs = active_children(), {}
    # Use processes, not threads: most of the time goes into compilation, which uses one core, and
    # concurrent LAPACK calls in one process are not safe.
    options = get_context("spawn"), start_worker, (quick, quick_flags() if quick else "")
    pools = [ProcessPoolExecutor(1, *options) for _ in waiting[: os.cpu_count() or 1]]
    free = list(pools)
    try:
        while waiting or jobs:
            while waiting and free:
                pool = free.pop()
                jobs |= {pool.submit(measure, cell): (pool, cell) for cell in waiting.pop(0)}
            for job in wait(jobs, return_when=FIRST_COMPLETED).done:
                pool, cell = jobs.pop(job)
                yield cell, job.result()
                if all(pool is not other for other, _ in jobs.values()):
                    free.append(pool)
    finally:
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        for worker in active_children():
            if worker not in others:
                worker.terminate()


def quick_flags(flag: str = "xla_cpu_use_fusion_emitters") -> str:
    """The flag that halves XLA's compilation time; an unknown one would abort, so "" then."""
    try:
        jax.jit(lambda x: x).lower(0.0).compile(compiler_options={flag: False})
    except jax.errors.JaxRuntimeError:
        return ""
    return f"--{flag}=false"


def start_worker(quick: bool, flags: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the workers
    threading.Thread(target=follow_parent, daemon=True).start()
    if flags:
        os.environ["XLA_FLAGS"] = " ".join([*os.environ.get("XLA_FLAGS", "").split(), flags])
    # compiling optimised programs would take longer than a quick run
    jax.config.update("jax_disable_most_optimizations", quick)
    jax.config.update("jax_traceback_in_locations_limit", 0)
    gc.set_threshold(20_000, 20, 20)  # tracing makes many objects and few cycles


def follow_parent() -> None:
    """Exit when the parent process exits, for whatever reason."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
