"""The cases of `benchmarks.streams`, in the order of their weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple
from zlib import crc32

from benchmarks.streams_models import (
    JUNK,
    NOISE,
    NORMED,
    PLAIN,
    POWERS,
    RANDOM,
    SINGLE,
    STRANGER,
    SUPERPOSED,
    TRAINED,
    randoms,
    strangers,
)
from icl_krr.catalogue import candidates
from icl_krr.experiments.solverbench.known import CHANGED, FEWER, KERNELS, kernels_of
from icl_krr.experiments.solverbench.settings import LINEAR, PROCESS, BenchConfig, Setting, setting

ENCODER = "trained encoder"
ENCODERS = ("gp-encoder", "gp-encoder-hard", "gp-encoder-2d")
FAMILIES = (LINEAR, PROCESS)
LEVELS = (1e-3, 1e-2, 1e-1)
FIRST = ("gradient_descent", "chebyshev", "conjugate_gradient", "richardson")
"""Solvers whose noise is measured with all seeds."""


class Case(NamedTuple):
    """One model.

    Attributes:
        kind: disguise, or kind of model that runs no candidate.
        tasks: family of tasks, or the trained encoder.
        about: the solver, or what the model runs in words.
        kernel: kernel that all candidates have.
        level: noise on the weights, channels of junk, or channels left out.
        seed: seed of tasks, noise and rotation.
        probed: whether this is about the readings of a linear probe of the model, for comparison.
    """

    kind: str
    tasks: str
    about: str
    kernel: str
    level: float = 0.0
    seed: int = 0
    probed: bool = False

    @property
    def file(self) -> str:
        start = f"{'probed-' if self.probed else ''}{self.kind.replace(' ', '-')}"
        return f"{start}-{crc32(repr(tuple(self)).encode()):08x}.json"


@cache
def setting_of(family: str, config: BenchConfig) -> Setting:
    return setting(family, config)


def solvers(kind: str, level: float = 0.0, seed: int = 0, **of: Any) -> Iterator[Case]:
    """Every candidate on its kernels, or on the first of them (`one`), or some (`names`)."""
    for family in of.get("families", FAMILIES):
        for solver in of.get("names", candidates()):
            for kernel in kernels_of(solver, family)[: 1 if of.get("one") else None]:
                yield Case(kind, family, solver, kernel, level, seed)


def others(kind: str, make: Callable[[Setting], Any], seed: int = 0) -> Iterator[Case]:
    for family in FAMILIES:
        for name in make(setting_of(family, BenchConfig())):
            yield Case(kind, family, name, KERNELS[family][0], seed=seed)


def cases() -> Iterator[Case]:
    """All cases, the most important first."""
    plain, open_set = [*solvers(PLAIN)], [*others(STRANGER, strangers)]
    first = [*solvers(PLAIN, one=True)]
    noisy = [c for level in LEVELS for c in solvers(NOISE, level, names=FIRST, one=True)]
    yield from first
    yield from open_set
    yield from solvers(JUNK, 64, one=True, families=(LINEAR,))
    yield from noisy
    for family in FAMILIES:
        yield Case(POWERS, family, POWERS, KERNELS[family][0])
    yield from solvers(SINGLE, names=FIRST, one=True)
    yield from (Case(ENCODER, run, run, "gaussian") for run in ENCODERS)
    random = sorted(others(RANDOM, lambda one: randoms(one, 0)), key=lambda c: "64" in c.about)
    yield from random
    yield from (c._replace(probed=True) for c in first)
    yield from (Case(SUPERPOSED, LINEAR, name, "linear", fewer) for name, fewer in FEWER)
    yield from solvers(TRAINED, names=CHANGED[:2], one=True)
    yield from solvers(NORMED, names=FIRST, one=True)
    for seed in (1, 2):
        yield from solvers(NOISE, LEVELS[0], seed, names=FIRST, one=True)
    yield from solvers(JUNK, 256, names=FIRST, one=True, families=(LINEAR,))
    small = [c for c in random if "width 16" in c.about or c.about.startswith("8 ")]
    yield from (c._replace(seed=1) for c in small)
    for seed in (1, 2):
        yield from solvers(PLAIN, seed=seed, one=True)
    yield from (c._replace(probed=True) for c in noisy)
    yield from solvers(JUNK, 16, one=True)
    yield from solvers(JUNK, 64, one=True, families=(PROCESS,))
    yield from (c._replace(probed=True) for c in open_set)
    yield from solvers(SINGLE, one=True)
    yield from solvers(NORMED, one=True)
    yield from solvers(NOISE, LEVELS[0], names=set_of_others(), one=True)
    for seed in (1, 2):
        yield from solvers(NOISE, LEVELS[1], seed, names=FIRST, one=True)
        yield from solvers(JUNK, 64, seed, names=FIRST, one=True)
    yield from (Case(ENCODER, run, run, "gaussian", seed=1) for run in ENCODERS)
    yield from plain
    yield from solvers(JUNK, 256, names=FIRST, one=True, families=(PROCESS,))


def set_of_others() -> tuple[str, ...]:
    return tuple(name for name in candidates() if name not in FIRST)


QUICK_CASES = (
    Case(PLAIN, LINEAR, "gradient_descent", "linear"),
    Case(PLAIN, LINEAR, "gradient_descent", "linear", probed=True),
    Case(JUNK, LINEAR, "gradient_descent", "linear", 4),
    Case(NOISE, LINEAR, "conjugate_gradient", "linear", 1e-2),
    Case(SINGLE, LINEAR, "gradient_descent", "linear"),
    Case(STRANGER, LINEAR, "the answer 0", "linear"),
    Case(RANDOM, LINEAR, "8 random functions of the task", "linear"),
    Case(POWERS, LINEAR, POWERS, "linear"),
)
