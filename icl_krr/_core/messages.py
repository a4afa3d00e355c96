"""Sentences of errors: values, known names, and the name that was meant."""

from __future__ import annotations

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
"""What other books and libraries call a keyword."""
_FORMULAS = {("Gaussian", "gamma"): "; did you mean 'lengthscale=(2 * gamma) ** -0.5'?"}
"""What makes a keyword of a class from one that other libraries have."""
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 100
_SHORT.maxlist = _SHORT.maxtuple = 16


def short_repr(value: Any) -> str:
    """A value in a message: its repr, cut where it is long, deep or of many lines.

    >>> print(short_repr("gauss"), short_repr([[[[[[[[1]]]]]]]]))
    'gauss' [[[[[[[...]]]]]]]
    """
    return one_line(_SHORT.repr(value))


def one_line(text: str) -> str:
    """A text in a message: one line of at most 200 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:197]}..."


def unknown_name(what: str, name: Any, known: Iterable[str]) -> str:
    """The sentence of an error: all known names, and those that resemble the given one.

    >>> print(unknown_name("kernel", "gausian", ("linear", "gaussian")))
    kernel must be one of 'linear', 'gaussian', got 'gausian'; did you mean 'gaussian'?
    """
    known = tuple(known)
    listed = ", ".join(map(repr, known))
    return f"{what} must be one of {listed}, got {short_repr(name)}{suggestion(name, known)}"


def suggestion(name: Any, known: Iterable[str]) -> str:
    """The end of such a sentence: the nearest known name, or up to three that contain the text.

    A synonym comes between a name that is close and one that is less so.

    >>> suggestion("alhpa", ("alpha", "r", "p"))
    "; did you mean 'alpha'?"
    """
    spelled = {normalised(one): one for one in known}
    if isinstance(name, type):
        row = spelled.get(normalised(name.__name__))
        return f"; write {row!r}" if row else constructor_hint(name)
    if not isinstance(name, str) or not name:
        return ""
    asked = normalised(name)
    close = (
        get_close_matches(asked, spelled, 1, 0.8)
        or [one for one, names in _SYNONYMS.items() if asked in names and one in spelled]
        or get_close_matches(asked, spelled, 1)
        or [one for one in spelled if len(asked) > 2 and asked in one][:3]
    )
    return f"; did you mean {' or '.join(repr(spelled[one]) for one in close)}?" if close else ""


def constructor_hint(cls: type) -> str:
    """How an object of a class of this library or of the user's own is made.

    >>> constructor_hint(dict)
    '; write dict()'
    """
    place = "icl_krr." if cls.__module__.startswith("icl_krr.") else ""
    bandwidth = getattr(cls, "bandwidth", None)
    return f"; write {place}{cls.__name__}({f'{bandwidth}=1.0' if bandwidth else ''})"


def normalised(name: str) -> str:
    return name.lower().replace("-", "_")


def suggest_keywords(function: F) -> F:
    """Let the error for an unknown keyword of a function say those that it has, and which is meant.

    >>> suggest_keywords(lambda ridge: ridge)(lam=0.1)
    Traceback (most recent call last):
    TypeError: keyword of <lambda> must be one of 'ridge', got 'lam'; did you mean 'ridge'?
    """

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except TypeError as error:
            if error.__traceback__ and not error.__traceback__.tb_next:  # before the first line
                name, known = (
                    function.__qualname__.removesuffix(".__init__"),
                    _keywords_of(function),
                )
                for given in keywords:
                    if given not in known:
                        told = unknown_name(f"keyword of {name}", given, known)
                        raise TypeError(told + _FORMULAS.get((name, given), "")) from None
            raise

    return call  # pyright: ignore[reportReturnType]


def _keywords_of(function: Callable) -> list[str]:
    """The names of all keywords, with those of a `TypedDict` that `**options` unpacks."""
    names = []
    for name, one in signature(function).parameters.items():
        typed = get_args(get_type_hints(function)[name]) if one.kind is one.VAR_KEYWORD else ()
        names += [*get_type_hints(typed[0])] if typed else [name] * (name != "self")
    return names
