"""What is compared: name -> function (quick, seed) -> contests, made one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .attention import attention, linear_context
from .contest import Contest
from .forwards import forwards, scaling
from .oracles import exact, iterative
from .profile import profile
from .startup import startup
from .steps import gradients, training

SUITES: dict[str, Callable[[bool, int], Iterator[Contest]]] = {
    "forward": forwards,
    "gradient": gradients,
    "attention": attention,
    "context": linear_context,
    "exact": exact,
    "iterative": iterative,
    "training": training,
    "startup": startup,
    "profile": profile,
    "scaling": scaling,
}
