"""Causal machines, whose tokens solve the regression of the supports before them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, TypedDict, Unpack

import numpy as np

from ..._core import causal, checks
from ..._core.causal import PrefixOptions
from ..._core.constants import xp
from ...kernels import Kernel
from ...residual import ROLES, Read, Slot
from ...residual._tokens import TOKENS
from ...transformer._weights import Transformer
from .choice import construction_like, linear_machine
from .linear_attention import LinearAttention
from .machine import Machine
from .options import Options
from .prefix_sums import PrefixSums
from .slots import QUERIES, SUPPORTS, SUPPORTS_AND_QUERIES, repeat


class CausalOptions(Options, PrefixOptions, TypedDict, total=False):
    r"""Keywords of causal constructions, in addition to those of `Options`.

    Token i attends to the supports of its prefix, so sums over supports depend on i. The *gate*
    and the *strength* of a token may be numbers, or vectors $w$ for $\langle w, x_i \rangle$: a
    model then reads them from the token, as the layers of language models do. Add channels to x for
    this purpose, and give the kernel a `projection` that leaves them out.

    A support predicts at its own x, while a layer reads at a query that is not its key. To read at
    such a query, make it another support, right after the token, with strength 0 and log gate 0
    (and momentum 1, decay 1 and step size 0 in `momentum_delta_rule`, process noise 0 in
    `kalman_delta_rule`): it changes no other prediction, but it counts as a support. The queries of
    the task read after all supports and after their own gate.

    Args:
        prefix: "exclusive" (default): the prediction at support i uses the supports j < i, and
            therefore not $y_i$. "inclusive": it uses j <= i. Queries see all supports.
        log_gate: logarithm $g_i \leq 0$ of the gate, a number or a vector [p]. With
            $G_i = \sum_{j \leq i} g_j$, token i sees support j with the factor $e^{G_i - G_j}$.
            Delta rules in linear attention also take a matrix $W$ [m, p], for a gate $g_i = W x_i$
            of each of the m features. Default None: no gate.
        strength: write strength $\beta_j \geq 0$ of a support, a number or a vector [p]; default
            None: 1.
        tokens: "pairs" (default) has one token per support, "interleaved" has a token for x,
            followed by a token for y, which first copies x from the token before it. Predictions
            are read at the tokens of x, so `prefix` must be "exclusive".
        max_supports: largest number of supports, >= 1; required for interleaved tokens, which find
            their partners by a code of so many channels. Default None.
        window: number w >= 1 of supports that a token sees: the last w of its prefix that are not
            masked, with their factors. The sums are taken anew, without those that left. Default
            None: all supports of the prefix.

    >>> import icl_krr as ik
    >>> options: CausalOptions = {"prefix": "inclusive", "log_gate": -0.1}
    >>> ik.constructions.delta_rule(ik.Linear(), num_features=3, step_size=0.1, **options).steps
    256
    """

    tokens: str
    max_supports: int | None


def compiled_from(solver: Callable, options: type = CausalOptions) -> Callable[..., Callable]:
    """Decorate the builder of a construction, which gets the keywords of a solver and its own.

    The construction takes these keywords, with their defaults, and `options`.
    """
    shared = [k for k in signature(solver).parameters.values() if k.kind is k.KEYWORD_ONLY]

    def decorate(build: Callable) -> Callable[..., Transformer]:
        extra = [k for k in signature(build).parameters.values() if k.default is not k.empty]
        parameters = {k.name: k for k in (*shared, *extra)}
        defaults = {k: v.default for k, v in parameters.items() if v.default is not v.empty}
        return construction_like(solver, parameters, options, partial(build, **defaults))

    return decorate


def causal_machine(
    make: Callable[..., Any],
    kernel: Kernel,
    num_features: int,
    *,
    prefix: str = "exclusive",
    log_gate: Any = None,
    strength: Any = None,
    tokens: str = "pairs",
    max_supports: int | None = None,
    window: int | None = None,
    **options: Unpack[Options],
) -> Any:
    """Make a machine with a causal mask, whose `strength` reads the strengths of its supports."""
    causal.check_prefix(prefix, log_gate, strength, window)
    checks.choice("tokens", tokens, TOKENS)
    if max_supports is not None:
        checks.count("max_supports", max_supports)
    interleaved = tokens == "interleaved"
    if interleaved and prefix == "inclusive":
        raise ValueError(
            "prefix must be 'exclusive' for interleaved tokens, where the token of x_i "
            "precedes that of y_i, got 'inclusive'"
        )
    if interleaved and max_supports is None:
        raise ValueError("max_supports must be given for interleaved tokens, got None")
    m = make(kernel, num_features, **options)
    m.spec = replace(
        m.spec,
        causal=True,
        inclusive=prefix == "inclusive",
        tokens=tokens,
        centred=False,  # the mean over all supports would look ahead
        max_supports=max_supports,
    )
    if window is not None:
        m.window = window * (2 if interleaved else 1)
    if interleaved and max_supports is not None:
        _read_partners(m, max_supports)  # before anything reads m.x
    if np.ndim(log_gate) == 2:
        causal.refuse_window(window)
    m.strength = m.support if strength is None else per_support(m, "strength", strength)
    if log_gate is not None:
        m.token_log_gate = per_token(m, "log_gate", log_gate)
        after = QUERIES if m.spec.inclusive else SUPPORTS_AND_QUERIES
        m.log_gate = accumulate(m, "log_gate", "cumulative log gate", m.token_log_gate, after)
    return m


def prefix_sums(
    kernel: Kernel,
    num_features: int,
    *,
    ridge: Any,
    stores_sums: bool = False,
    kind: Callable[..., Any] = PrefixSums,
    **options: Unpack[CausalOptions],
) -> PrefixSums:
    r"""Make a machine whose tokens solve the ridge regressions of their prefixes.

    It has the operations of `machine`. The unknowns are coefficients $w_i$ of the features, which
    every token stores for itself, in states that `vector` declares. `right` reads the right-hand
    side $b_i = \sum_j \phi_j y_j$, `kernel_times` multiplies by $C_i = \sum_j \phi_j \phi_j^T$,
    `dot` is the inner product of two slots at the same token, and `fit_of` computes the predictions
    $\phi_i^T v_i$ of coefficients v.

    Args:
        ridge: ridge of the regression, for `icl_krr.check`; None for several.
        kind: `PrefixSums` or a subclass, for other systems of the features.

    >>> import icl_krr as ik
    >>> m = prefix_sums(ik.Linear(), num_features=2, ridge=0.1)
    >>> prediction = m.state("prediction", ("support", "query"), "phi . b")
    >>> w = m.vector("w", "coefficients", starts_as=m.right)
    >>> def step():
    ...     m.add_fit(w, None, to=prediction)
    >>> m.transformer(step, steps=1, readout=prediction).blocks_per_step
    1
    """
    checks.flag("stores_sums", stores_sums)
    m = causal_machine(partial(linear_machine, kind=kind), kernel, num_features, **options)
    m.stores_sums = stores_sums
    if ridge is not None:
        checks.ridges(ridge, m.features.width)
    plain = m.strength is m.support and m.log_gate is None and m.window is None
    if ridge is not None and np.ndim(ridge) == 0 and plain:
        m.solves(ridge)  # queries have the prediction of kernel ridge regression
    return m


def _read_partners(m: Machine, max_supports: int) -> None:
    """Make m.x read x at tokens of y too, copied from the token of x with the same place."""
    place = m.declare(Slot("place", max_supports, "data", ROLES, "one-hot number of the support"))
    here = m.scratch("place_here", SUPPORTS, "place", width=max_supports)
    x = m.x
    partner = m.state("x_before", SUPPORTS, "x of the token before", width=x.width)
    numbers = (np.arange(2 * max_supports + 2) + 1) // 2  # 0 for the aggregator, then 1, 1, 2, 2
    codes = numbers[:, None] == 1 + np.arange(max_supports)[None]
    m.positions = {"place": codes.astype(m.dtype)}
    m.x = x + partner

    def copy() -> None:
        m.add(place, to=here)
        m.gather(here, place, x, to=partner)

    m.preparations.append(copy)


def per_token(m: Machine, name: str, value: Any) -> Read:
    """A number as a read that is this number at supports and queries, or W x for an array W."""
    if np.ndim(value) == 0:
        return xp.asarray(value, m.dtype) * m.inside(SUPPORTS_AND_QUERIES)
    width = m.features.width if name == "log_gate" and type(m) is LinearAttention else None
    causal.check_token_parameter(name, value, m.x.width, width)
    return m.x @ xp.atleast_2d(xp.asarray(value, m.dtype)).T


def per_support(m: Machine, name: str, value: Any) -> Read:
    """A number of every support: a multiple of the flag, or a state for a vector."""
    if np.ndim(value) == 0:
        return xp.asarray(value, m.dtype) * m.support
    state = m.state(name, SUPPORTS, f"{name} of a support", width=1)
    m.preparations.append(partial(m.add, per_token(m, name, value), to=state))
    return state


def one_elsewhere(m: Machine, value: Read, to: str, about: str) -> Read:
    """A slot with a value at supports and 1 at other tokens, for a divisor or a logarithm.

    Adding 1 in a read would lose digits of a small value.
    """
    slot = m.scratch(to, ROLES, about, width=value.width)
    with m.together():
        m.add(value, to=slot)
        m.add(repeat(m.one - m.support, value.width), to=slot)
    return slot


def floor(m: Machine) -> Any:
    """A small number whose logarithm and reciprocal are well inside the range of the dtype."""
    return np.finfo(m.dtype).tiny ** 0.8


def accumulate(m: Machine, name: str, about: str, read: Read, after: tuple[str, ...]) -> Read:
    """A state with the cumulative sums of a read over supports, at roles `after` with its own."""
    total = m.state(name, ROLES, f"{about}, of padding too", width=read.width)

    def add_up() -> None:
        terms = m.add(read, to=m.scratch(f"{name}_here", SUPPORTS, about, width=read.width))
        m.cumsum(terms, to=total)
        if after:
            m.add(read, to=total, at=after)

    m.preparations.append(add_up)
    return total
