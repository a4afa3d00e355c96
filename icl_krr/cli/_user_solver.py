"""Solvers in files of the user: commands take FILE.py:NAME in place of the name of a solver."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from traceback import walk_tb
from types import ModuleType

from .._core.messages import short_repr
from ..catalogue import SolverEntry, find, register
from ..catalogue._solvers import KEYWORDS


def register_file(argument: str) -> str:
    """Register the solver of FILE.py:NAME and return NAME; other names are returned as they are.

    An error, also one that the function raises, is one sentence with the line of the file.
    """
    if ".py:" not in argument:
        return argument
    import jax

    from .. import Linear
    from ..solvers._language.trace import trace
    from ..solvers._run import NORMALISED, Solver as Marked

    file, _, name = argument.rpartition(":")
    source = Path(file).read_text()
    module = sys.modules[f"file {file}"] = ModuleType(f"file {file}")
    kinds: set[str] = set()

    def read_kinds(low, high):
        numbers = {key: (low, high) if key == "spectrum" else high for key in fitted}
        program, _ = trace(function.function, Linear(), 1, numbers)
        kinds.update(op.kind for op in program.ops)

    try:
        with redirect_stdout(sys.stderr):  # what the file prints is not a result of the command
            exec(compile(source, file, "exec"), vars(module))
        function = vars(module).get(name, "no such name")
        if not isinstance(function, Marked):
            mark = "a function with the mark icl_krr.solver"
            raise ValueError(f"{name} must be {mark}, got {short_repr(function)}")
        needs = [key for key, one in function.parameters.items() if one.default is one.empty]
        words = f"keyword without a default of {name}"
        fitted = {key: find(words, KEYWORDS, key) for key in needs if key != "steps"}
        jax.eval_shape(read_kinds, 0.5, 1.0)
    except Exception as error:
        frames = walk_tb(error.__traceback__)
        lines = [line for frame, line in frames if frame.f_code.co_filename == file]
        place = f", line {lines[-1]}: {type(error).__name__}" if lines else ""
        first, _, _ = str(error).partition("\n")
        raise ValueError(f"{file}{place}: {first}") from error
    kernels = "featured" if kinds & {"features", "inner", "nystrom"} else "any"
    entry = SolverEntry(
        name,
        name,
        solver=function,
        kernels="positive" if kinds & {*NORMALISED, "average"} else kernels,
        required_inputs=tuple(fitted),
        fitted={key: box for boxes in fitted.values() for key, box in boxes.items()},
        source=source,
    )
    register(entry)
    return name
