"""Run the claims over several seeds, side by side."""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import jax

from ...fields import unknown
from ..shared.rows import Rows
from .claim import Claim, Verdict, judge, named
from .result import Result, summarise


def claims() -> dict[str, Claim]:
    """Return all claims in the order of their numbers."""
    return {name: module.CLAIM for name, module in modules().items()}


def modules() -> dict[str, ModuleType]:
    """Import the module of every claim: the module of C16 is `c16_sketch_error`."""
    files = sorted(Path(__file__).parent.glob("c[0-9][0-9]_*.py"))
    return {f"C{int(f.stem[1:3])}": import_module(f".{f.stem}", __package__) for f in files}


def choose(names: Iterable[str]) -> dict[str, Claim]:
    """Return the claims with these names, or all claims if there are no names."""
    known = claims()
    chosen = [name.upper() for name in names]
    for name in chosen:
        if name not in known:
            raise ValueError(unknown("claim", name, known))
    return {name: known[name] for name in chosen} if chosen else known


def verify(
    name: str,
    claim: Claim,
    *,
    seeds: Iterable[int],
    quick: bool = False,
    config: Any = None,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[Result, Rows]:
    """Run a claim with every seed, with its own settings or with those in `config`."""
    if config is None:
        config = claim.quick if quick else claim.config
    rows: Rows = []
    verdicts: dict[int, Verdict] = {}
    clocks = time.perf_counter, time.process_time
    start = [clock() for clock in clocks]
    with jax.enable_x64(claim.dtype == "float64"):  # pyright: ignore[reportAttributeAccessIssue]
        for seed in seeds:
            try:
                found, checks = claim.run(config, jax.random.key(seed))
            except (ValueError, TypeError, LookupError, ArithmeticError) as error:
                if config in (claim.config, claim.quick):
                    raise
                reason = str(error).partition("\n")[0]
                kind = "" if isinstance(error, ValueError) else f"{type(error).__name__} "
                raise ValueError(f"{name} cannot run with these settings: {kind}{reason}") from None
            verdicts[seed] = judge(*named(checks))
            rows += [{"seed": seed, **row} for row in found]
            progress(1)
    seconds, cpu_seconds = (clock() - began for clock, began in zip(clocks, start, strict=True))
    return summarise(name, claim, config, verdicts, seconds, cpu_seconds), rows


def verify_all(
    chosen: Mapping[str, Claim],
    *,
    seeds: range,
    quick: bool = False,
    configs: Mapping[str, Any] = MappingProxyType({}),
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, tuple[Result, Rows]]:
    """Run several claims, some with settings in `configs`; on a CPU, one per core at a time."""
    if len(chosen) == 1 or jax.default_backend() != "cpu":
        return {
            name: verify(
                name, claim, seeds=seeds, quick=quick, config=configs.get(name), progress=progress
            )
            for name, claim in chosen.items()
        }
    found, others = {}, active_children()
    # Use processes, not threads: most of the time goes into compilation, which uses one core, and
    # concurrent LAPACK calls in one process are not safe.
    cores, context = min(len(chosen), os.cpu_count() or 1), get_context("spawn")
    flags = quick_flags() if quick else ""
    with ProcessPoolExecutor(cores, context, start_worker, (quick, flags)) as pool:
        try:
            jobs = [
                pool.submit(verify_named, name, seeds, quick, configs.get(name)) for name in chosen
            ]
            for job in as_completed(jobs):
                name, *found[name] = job.result()
                progress(len(seeds))
        except BaseException:
            for worker in active_children():
                if worker not in others:
                    worker.terminate()
            raise
    return {name: tuple(found[name]) for name in chosen}


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


def verify_named(name: str, seeds: range, quick: bool, config: Any) -> tuple[str, Result, Rows]:
    return name, *verify(name, claims()[name], seeds=seeds, quick=quick, config=config)
