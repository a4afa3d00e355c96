"""The compiler of solvers: a program becomes operations of a machine, pass by pass."""

from .compile import compile, construction_of, emit, run_on

__all__ = ["compile", "construction_of", "emit", "run_on"]
