"""What a caller asks of a run of one task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from ..tasks import Task
from ._hook_points import Hook
from ._weights import Transformer

Answer = Callable[[dict[str, jax.Array], Transformer, Task], Any]
"""Function from all readouts by name, model and task to what a run returns."""


class Request(NamedTuple):
    """What a run of one task returns. It is static: every request has its own program.

    Stored are the slots `names` at the start and after every step, and the points `keep` inside of
    blocks (True: all). With `along`, the predictions at the supports precede those at the queries.
    The result of `answer` replaces the prediction.
    """

    names: tuple[str, ...] = ()
    keep: bool | tuple[str, ...] = ()
    hooks: tuple[tuple[str, Hook], ...] = ()
    along: bool = False
    answer: Answer | None = None


PREDICTION = Request()
