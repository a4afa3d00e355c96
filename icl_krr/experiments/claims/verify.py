"""Run the claims over several seeds and summarise the measurements and verdicts."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np

from ...files import Lines, to_markdown
from ...names import unknown
from ..shared.rows import Rows
from .claim import CORRECTED, FALSE, HOLDS, OPEN, Check, Claim, Verdict
from .sources import REFERENCES


class Result(NamedTuple):
    """The results of a claim over several seeds.

    Attributes:
        id: name of the claim, such as "C16".
        statement: the claim in the notation of this library.
        source: work and place of the claim, or that it is ours alone (see `Claim.source`).
        quote: the claim as printed there.
        truth: what holds instead of the statement, or in addition.
        corrected: whose `truth` is, "theirs" or "ours".
        told: what the models are told besides the kernel (see `Claim.told`).
        status: verdict of this run. If seeds differ, the least favourable verdict.
        expected: verdict that this library found before.
        check: name of the headline check (see `Verdict.headline`).
        measured: measured value of the headline check, mean over seeds.
        interval: 95 % bootstrap interval of `measured`, None for a single seed.
        bound: bound of the headline check, mean over seeds.
        tightness: tightness of the headline check, mean over seeds.
        vacuous: vacuous share of the headline check, mean over seeds.
        seed: first seed with a counterexample, None if there is no counterexample.
        draw: first draw of that seed with a counterexample (see `Check.draw`).
        dtype: precision of the experiment.
        seeds: number of seeds.
        seconds: run time in seconds.
        cpu_seconds: time of all CPU cores in seconds, with compilation.
        checks: all checks. Each has the values of the seed with the largest tightness, and its
            shares are means over seeds.
    """

    id: str
    statement: str
    source: str
    quote: str
    truth: str
    corrected: str
    told: str
    status: str
    expected: str
    check: str
    measured: float
    interval: tuple[float, float] | None
    bound: float
    tightness: float
    vacuous: float
    seed: int | None
    draw: int | None
    dtype: str
    seeds: int
    seconds: float
    cpu_seconds: float
    checks: tuple[Check, ...]

    @property
    def agrees(self) -> bool:
        """Whether the status equals the expected status."""
        return self.status == self.expected


def claims() -> dict[str, Claim]:
    """Return all claims in the order of their numbers."""
    return {name: module.CLAIM for name, module in modules().items()}


def modules() -> dict[str, ModuleType]:
    """Import the module of every claim: the module of C16 is `c16_sketch_error`."""
    files = sorted(Path(__file__).parent.glob("c[0-9][0-9]_*.py"))
    return {f"C{int(f.stem[1:3])}": import_module(f".{f.stem}", __package__) for f in files}


def choose(names: Iterable[str]) -> dict[str, Claim]:
    """Return the claims with these names, or all claims if there are no names.

    Raises:
        ValueError: there is no claim with one of the names.
    """
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
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[Result, Rows]:
    """Run a claim with every seed. The rows get a column `seed`.

    Args:
        name: name of the claim, such as "C16".
        claim: the claim.
        seeds: seeds of the runs, >= 0.
        quick: run the smaller experiment (default: False).
        progress: called with the number of seeds that were finished since the last call.
    """
    rows: Rows = []
    verdicts: dict[int, Verdict] = {}
    clocks = time.perf_counter, time.process_time
    start = [clock() for clock in clocks]
    with jax.enable_x64(claim.dtype == "float64"):  # pyright: ignore[reportAttributeAccessIssue]
        for seed in seeds:
            found, verdicts[seed] = claim.run(
                claim.quick if quick else claim.config, jax.random.key(seed)
            )
            rows += [{"seed": seed, **row} for row in found]
            progress(1)
    seconds, cpu_seconds = (clock() - began for clock, began in zip(clocks, start, strict=True))
    return summarise(name, claim, verdicts, seconds, cpu_seconds), rows


def verify_all(
    chosen: Mapping[str, Claim],
    *,
    seeds: range,
    quick: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, tuple[Result, Rows]]:
    """Run several claims; on a CPU, every core runs one claim at a time.

    Args:
        chosen: claims by name.
        seeds: seeds of the runs, >= 0.
        quick: run the smaller experiments (default: False).
        progress: called with the number of seeds that were finished since the last call.
    """
    if len(chosen) == 1 or jax.default_backend() != "cpu":
        return {
            name: verify(name, claim, seeds=seeds, quick=quick, progress=progress)
            for name, claim in chosen.items()
        }
    found, others = {}, active_children()
    # Use processes, not threads: most of the time goes into compilation, which uses one core, and
    # concurrent LAPACK calls in one process are not safe.
    cores, context = min(len(chosen), os.cpu_count() or 1), get_context("spawn")
    with ProcessPoolExecutor(cores, context, start_worker, (quick,)) as pool:
        try:
            # workers inherit the mask: Ctrl-C reaches all processes, but this one ends the workers
            masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            jobs = [pool.submit(verify_named, name, seeds, quick) for name in chosen]
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
            for job in as_completed(jobs):
                name, *found[name] = job.result()
                progress(len(seeds))
        except BaseException:
            for worker in active_children():
                if worker not in others:
                    worker.terminate()
            raise
    return {name: tuple(found[name]) for name in chosen}


def start_worker(quick: bool) -> None:
    threading.Thread(target=follow_parent, daemon=True).start()
    # compiling optimised programs would take longer than a quick run
    jax.config.update("jax_disable_most_optimizations", quick)


def follow_parent() -> None:
    """Exit when the parent process exits, for whatever reason."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def verify_named(name: str, seeds: range, quick: bool) -> tuple[str, Result, Rows]:
    return name, *verify(name, claims()[name], seeds=seeds, quick=quick)


def summarise(
    name: str, claim: Claim, verdicts: dict[int, Verdict], seconds: float, cpu_seconds: float
) -> Result:
    found = [verdict.status for verdict in verdicts.values()]
    status = next(status for status in (OPEN, FALSE, CORRECTED, HOLDS) if status in found)
    seed, verdict = next(pair for pair in verdicts.items() if pair[1].status == status)
    place = verdict.checks.index(verdict.headline)
    each = [own.checks[place] for own in verdicts.values()]
    measured = np.array([check.measured for check in each])
    broken = not verdict.headline.holds
    return Result(
        id=name,
        statement=claim.statement,
        source=claim.source,
        quote=claim.quote,
        truth=claim.truth,
        corrected=claim.corrected,
        told=claim.told,
        status=status,
        expected=claim.expected,
        check=verdict.headline.name,
        measured=float(np.mean(measured)),
        interval=bootstrap(measured),
        bound=float(np.mean([check.bound for check in each])),
        tightness=float(np.mean([check.tightness for check in each])),
        vacuous=float(np.mean([check.vacuous for check in each])),
        seed=seed if broken else None,
        draw=verdict.headline.draw,
        dtype=claim.dtype,
        seeds=len(verdicts),
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        checks=tuple(
            over_seeds(dict(zip(verdicts, same, strict=True)))
            for same in zip(*(verdict.checks for verdict in verdicts.values()), strict=True)
        ),
    )


def over_seeds(checks: dict[int, Check]) -> Check:
    """Return the check of largest tightness with its seed and with shares averaged over seeds."""
    seed, worst = max(checks.items(), key=lambda pair: pair[1].tightness)
    violations, vacuous = (
        float(np.mean([getattr(check, name) for check in checks.values()]))
        for name in ("violations", "vacuous")
    )
    return worst._replace(violations=violations, vacuous=vacuous, seed=seed)


def bootstrap(values: np.ndarray) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the mean, or None for a single value."""
    if len(values) < 2:
        return None
    picks = np.random.default_rng(0).integers(len(values), size=(2000, len(values)))
    low, high = np.percentile(np.mean(values[picks], axis=1), [2.5, 97.5])
    return float(low), float(high)


def table(results: Iterable[Result]) -> Lines:
    """Return the table of claims that the README and the report show."""
    header = [
        "claim",
        "verdict",
        "source",
        "as printed",
        "what holds",
        "whose correction",
        "models are told",
        "measured",
        "bound",
        "dtype",
    ]
    lines = [
        [
            f"{result.id}: {result.statement}",
            result.status,
            result.source,
            result.quote,
            result.truth,
            result.corrected,
            result.told,
            f"{result.measured:.3g}: {result.check}",
            f"{result.bound:.3g}",
            result.dtype,
        ]
        for result in results
    ]
    return header, lines


def compute(results: Iterable[Mapping[str, Any]]) -> str:
    """Say how much computing time the claims took."""
    seconds = sum(result["cpu_seconds"] for result in results)
    return f"Computing time: {seconds:.0f} CPU seconds, with compilation."


def references(results: Iterable[Result]) -> list[str]:
    """Return a line for each work that the claims quote."""
    quoted = {result.source.partition(",")[0] for result in results}
    return [f"{name}: {work}." for name, work in REFERENCES.items() if name in quoted]


def markdown(results: Iterable[Result]) -> str:
    results = list(results)
    listed = "".join(f"- {line}\n" for line in references(results))
    return f"The claims quote:\n\n{listed}\n{to_markdown(table(results))}"
