"""Parts of error messages: short representations, lists of names, suggestions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from reprlib import Repr
from typing import Any, TypeVar, get_args, get_type_hints

F = TypeVar("F", bound=Callable)
_SYNONYMS = {
    "ridge": ("lam", "lambda_", "alpha", "reg", "regularization", "l2"),
    "steps": ("iterations", "max_iter", "n_iter"),
    "step_size": ("eta", "lr", "learning_rate"),
    "lengthscale": ("ell", "sigma", "bandwidth"),
    "temperature": ("tau", "bandwidth"),
    "num_features": ("p", "d", "n_features", "dim"),
}
"""Names of keywords in other libraries and books."""
_FORMULAS = {("Gaussian", "gamma"): "; did you mean 'lengthscale=(2 * gamma) ** -0.5'?"}
"""How to convert a keyword of other libraries, by class and keyword."""
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 100
_SHORT.maxlist = _SHORT.maxtuple = 16


def short_repr(value: Any) -> str:
    """The repr of a value, shortened if it is long, deep or has many lines.

    >>> print(short_repr("gauss"), short_repr([[[[[[[[1]]]]]]]]))
    'gauss' [[[[[[[...]]]]]]]
    """
    return one_line(_SHORT.repr(value))


def one_line(text: str) -> str:
    """The text in one line of at most 200 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:197]}..."


def unknown_name(what: str, name: Any, names: Iterable[str]) -> str:
    """The message for an unknown name: all names, and those that resemble it.

    >>> print(unknown_name("kernel", "gausian", ("linear", "gaussian")))
    kernel must be one of 'linear', 'gaussian', got 'gausian'; did you mean 'gaussian'?
    """
    names = tuple(names)
    listed = ", ".join(map(repr, names))
    return f"{what} must be one of {listed}, got {short_repr(name)}{suggestion(name, names)}"


def suggestion(name: Any, choices: Iterable[str]) -> str:
    """The nearest of the choices, or up to three that contain the name, as a "did you mean".

    A synonym comes between a name that is close and one that is less so.

    >>> suggestion("alhpa", ("alpha", "r", "p"))
    "; did you mean 'alpha'?"
    """
    spellings = {normalised(choice): choice for choice in choices}
    if isinstance(name, type):
        row = spellings.get(normalised(name.__name__))
        return f"; write {row!r}" if row else constructor_hint(name)
    if not isinstance(name, str) or not name:
        return ""
    query = normalised(name)
    close = (
        get_close_matches(query, spellings, 1, 0.8)
        or [choice for choice, names in _SYNONYMS.items() if query in names and choice in spellings]
        or get_close_matches(query, spellings, 1)
        or [choice for choice in spellings if len(query) > 2 and query in choice][:3]
    )
    return f"; did you mean {' or '.join(repr(spellings[key]) for key in close)}?" if close else ""


def constructor_hint(cls: type) -> str:
    """How to construct an object of a class, of this library or of a user.

    >>> constructor_hint(dict)
    '; write dict()'
    """
    place = "icl_krr." if cls.__module__.startswith("icl_krr.") else ""
    bandwidth = getattr(cls, "bandwidth", None)
    return f"; write {place}{cls.__name__}({f'{bandwidth}=1.0' if bandwidth else ''})"


def normalised(name: str) -> str:
    return name.lower().replace("-", "_")


def suggest_keywords(function: F) -> F:
    """Let the error for an unknown keyword list the keywords of the function and suggest one.

    >>> suggest_keywords(lambda ridge: ridge)(lam=0.1)
    Traceback (most recent call last):
    TypeError: keyword of <lambda> must be one of 'ridge', got 'lam'; did you mean 'ridge'?
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ and not error.__traceback__.tb_next:  # before the first line
                name = function.__qualname__.removesuffix(".__init__")
                names = _keywords_of(function)
                for keyword in kwargs:
                    if keyword not in names:
                        message = unknown_name(f"keyword of {name}", keyword, names)
                        raise TypeError(message + _FORMULAS.get((name, keyword), "")) from None
            raise

    return call  # pyright: ignore[reportReturnType]


def _keywords_of(function: Callable) -> list[str]:
    """The names of all keywords, including those of a `TypedDict` that `**options` unpacks."""
    names = []
    for name, one in signature(function).parameters.items():
        typed = get_args(get_type_hints(function)[name]) if one.kind is one.VAR_KEYWORD else ()
        names += [*get_type_hints(typed[0])] if typed else [name] if name != "self" else []
    return names


def time_left(begin: float, done: int, total: int) -> str:
    """The time for the rest, if each part takes as long as those since `begin`, in monotonic time.

    >>> time_left(time.monotonic() - 60, 1, 11)
    'about 10 min left'
    """
    seconds = (time.monotonic() - begin) / done * (total - done)
    return f"about {seconds / 60:.0f} min left" if seconds > 90 else f"about {seconds:.0f} s left"
