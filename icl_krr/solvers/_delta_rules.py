"""The delta rules: solvers that learn from one support after the other, each by its error."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .. import Kernel, Task, losses
from .._core import causal, checks
from .._core.causal import PrefixOptions
from .._core.constants import as_constant, xp
from .._core.numerics import matmul, reciprocal
from .._core.status_warning import warn_unless_ok
from ..tasks._task import check_axes
from ._prefix import PrefixSpec, Tokens, decays, make_tokens, per_token, prefix_spec, solve
from ._results import CausalTrajectory, recurrent
from ._run import check_keywords


class Token(NamedTuple):
    """The inputs of a support to the recurrence of a rule of m features, for r outputs.

    Attributes:
        gate: forgetting of each feature, or one for all.
        strength: strength of the update, 0 if the support does not learn yet.
        full_strength: strength of the update, also of supports that do not learn yet.
        learns: whether the support learns up to this iterate.
    """

    phi: Float[Array, " m"]
    y: Float[Array, " r"]
    gate: Float[Array, " c"]
    strength: Float[Array, ""]
    full_strength: Float[Array, ""]
    learns: Bool[Array, ""]
    x: Float[Array, " p"]

    def number(self, name: str, value: Any) -> jax.Array:
        """Return a parameter of a rule at this token.

        Args:
            name: name of the parameter, for messages.
            value: number for all tokens, or a vector w for <w, x>.
        """
        causal.check_token_parameter(name, value, len(self.x))
        return per_token(self.x[None], jnp.ones(1, bool), value)[0]

    def error(self, S: Float[Array, "m r"]) -> Float[Array, " r"]:
        """y - S phi, before the write."""
        return self.y - matmul(self.phi[None], S)[0]


def rule(function: Callable) -> Any:
    """Make a causal solver of a function that checks its numbers and returns `(start, step)`.

    `start` gives the states beside S, which is 0, for m features and r outputs. `step` takes a
    token, S after the gates, and the other states, and returns the new states and the coefficients
    [r]. An `ErrorCorrection` step needs no features.
    """
    steps = Parameter("steps", Parameter.KEYWORD_ONLY, default=None, annotation="int | None")
    parameters = {**signature(function).parameters, "steps": steps}

    def solve_task(kernel: Kernel, task: Task, **options: Any) -> CausalTrajectory:
        check_keywords(function.__name__, parameters, options, PrefixOptions.__annotations__)
        spec_args: Any = {k: options.pop(k) for k in PrefixOptions.__annotations__ if k in options}
        steps = options.pop("steps", None)
        _, step = function(**options)
        corrects = isinstance(step, _ErrorCorrection) and step.erase is None
        of_features = not corrects or np.ndim(spec_args.get("log_gate")) == 2
        if of_features:
            causal.refuse_window(spec_args.get("window"))
        check_axes(task)
        steps = task.num_supports if steps is None else steps
        spec = prefix_spec(kernel, task, steps, spec_args, of_features)
        choices = {name: value for name, value in options.items() if isinstance(value, (str, bool))}
        numbers = {name: value for name, value in options.items() if name not in choices}
        degrees = 1 if options.get("loss") is None else None  # losses take y in its own units
        iterates = _iterates_from_state if of_features else _iterates_from_kernel
        static = function, tuple(choices.items()), steps
        path = solve(task, iterates, static, recurrent, degrees, kernel, spec, numbers)
        return warn_unless_ok(path)

    kernel, task, options = signature(solve_task).parameters.values()
    solver: Any = wraps(function)(solve_task)
    every = [kernel, task, *parameters.values(), options.replace(annotation=PrefixOptions)]
    solver.__signature__ = Signature(every, return_annotation="CausalTrajectory")
    solver.function = function
    return solver


class _ErrorCorrection(NamedTuple):
    """The step of a rule whose coefficients are a rate times the derivative of the loss."""

    rate: Callable  # of strength and k(x, x)
    loss: Any = None
    erase: Any = None

    def __call__(self, token: Token, S: Any) -> tuple:
        query_token = token
        if self.erase is not None:
            causal.check_erase(self.erase, len(token.x), len(token.phi))
            query_token = token._replace(phi=matmul(token.x[None], self.erase.T)[0])
        rate = self.rate(token.strength, jnp.sum(token.phi * token.phi))
        alpha = rate * self.derivative(query_token.error(S))
        return (S + jnp.outer(token.phi, alpha),), alpha

    def derivative(self, error: jax.Array) -> jax.Array:
        return error if self.loss is None else self.loss.derivative(error)


@rule
def delta_rule(*, step_size, normalised=False, loss=None, erase=None):
    r"""Learn from the supports one by one, each from its error.

    $$\alpha_i = \eta_i (y_i - f_i), \quad f_i = \sum_{j < i} e^{G_i - G_j} k(x_i, x_j) \alpha_j$$

    The step size is $\eta_i = \eta \beta_i$; $G_i$ is the sum of the log gates up to i. Iterate t
    has learned from the first t supports that are not masked. For the linear kernel, it is
    $f_i = e^{g_i} S_{i-1} x_i$ with the recurrence $S_i = e^{g_i} S_{i-1} + \alpha_i x_i^T$;
    without gates, $\alpha$ solves $(\mathrm{tril}(K, -1) + \eta^{-1} I) \alpha = y$. With a
    `window` of w, $S_i$ sums over $i - w < j \leq i$, and $\alpha_i$ corrects what $S_{i-1}$
    predicts.

    As weights, a step takes one block, or two with softmax attention, which multiplies by the
    normaliser first, and two more for `Huber` or three for `Power`. The states are alpha,
    next_alpha ($\alpha$ one step later, so that `alpha` and `prediction` belong together),
    step_mask (1 at supports that have been reached), current_rate (their step sizes) and
    prediction.

    Args:
        normalised: whether to divide $\eta_i$ by $k(x_i, x_i)$. This erases as a layer does that
            divides $q_i$ and $k_i$ by their lengths, but writes $y_i / |x_i|$ and reads at $x_i$:
            with $y_i = |k_i| v_i$ it has the state of that layer, and predicts $|k_i| o_i$.
        loss: loss $\ell$ from `icl_krr.losses`: $\alpha_i = \eta_i \ell'(y_i - f_i)$, with y in its
            own units; default None, the squared error.
        erase: matrix E [m, p] for a kernel of m features, in linear attention: the error is
            $y_i - S \, E x_i$; default None: at the features themselves.

    Source: Widrow and Hoff, Adaptive switching circuits, 1960.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 2.0], x_query=[[1.0]])
    >>> delta_rule(Linear(), task, step_size=0.5).along[-1].tolist()
    [0.0, 1.0, 1.5]
    """
    checks.positive_scalar("step_size", step_size)
    checks.flag("normalised", normalised)
    losses.check(loss)

    def rate(strength, diagonal):
        return step_size * strength * (reciprocal(diagonal) if normalised else 1)

    return None, _ErrorCorrection(rate, loss, erase)


@rule
def implicit_delta_rule(*, step_size):
    r"""Learn from the supports one by one, each by an implicit step.

    $$\alpha_i = \frac{\eta_i}{1 + \eta_i k(x_i, x_i)} (y_i - f_i), \quad \eta_i = \eta \beta_i$$

    With the $f_i$ of `delta_rule`, this minimises $|S - S_{i-1}|^2 + \eta_i |y_i - S \phi_i|^2$, so
    it never steps too far: the error at $x_i$ shrinks by the factor $1 / (1 + \eta_i k(x_i, x_i))$.
    For $\eta \to \infty$, it is `delta_rule` with `normalised` and step size 1, and its blocks and
    states are those of that rule.

    Source: Kulis and Bartlett, Implicit online learning, 2010.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 2.0], x_query=[[1.0]])
    >>> implicit_delta_rule(Linear(), task, step_size=1.0).along[-1].tolist()
    [0.0, 1.0, 1.5]
    """
    checks.positive_scalar("step_size", step_size)

    def rate(strength, diagonal):
        eta = step_size * strength
        return eta * reciprocal(1 + eta * diagonal)

    return None, _ErrorCorrection(rate)


@rule
def momentum_delta_rule(*, step_size, momentum, decay=1.0):
    r"""Learn from the supports one by one, with momentum.

    $$M_i = \theta_i M_{i-1} + \beta_i (y_i - S_{i-1} \phi_i) \phi_i^T, \quad
    S_i = \alpha_i S_{i-1} + \eta_i M_i$$

    $\phi$ are the m features of the kernel. Before that, a log gate $g_i$ multiplies S and M by
    $e^{g_i}$. The coefficients `alpha` are $\beta_i (y_i - S_{i-1} \phi_i)$: the error is that of
    $S_{i-1}$ before it decays. With momentum 0 and decay 1, this is the gated `delta_rule`.

    As weights, a step takes 2 blocks: the slot `M` [T, r m] has the $M_i$, sums with the gates
    $\theta$, and one more head, with the keys $M_j$ and the gates $\alpha$, computes $S \phi$.

    Args:
        step_size: step size $\eta$ > 0, or a vector $w$ [p] for $\eta_i = \langle w, x_i \rangle$.
        momentum: factor $\theta$ in [0, 1) of the momentum of the support before, or a vector [p].
        decay: factor $\alpha$ in (0, 1] of the state of the support before, or a vector [p].

    Source: Behrouz, Zhong, Mirrokni, Titans, 2025, eq. 9, 10 and 13.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0], [1.0]], y=[2.0, 2.0, 2.0], x_query=[[1.0]])
    >>> path = momentum_delta_rule(Linear(), task, step_size=0.5, momentum=0.5)
    >>> path.along[-1].tolist()
    [0.0, 1.0, 2.0, 2.5]
    """
    checks.satisfies("step_size", step_size, "> 0")
    checks.satisfies("momentum", momentum, ">= 0 and < 1")
    checks.satisfies("decay", decay, "> 0 and <= 1")

    def step(token, S, M):
        eta, theta = token.number("step_size", step_size), token.number("momentum", momentum)
        alpha = token.strength * token.error(S)
        M = theta * token.gate[:, None] * M + jnp.outer(token.phi, alpha)
        return (token.number("decay", decay) * S + eta * M, M), alpha

    return lambda m, r: (np.zeros((m, r)),), step


@rule
def preconditioned_delta_rule(*, step_size, initial=1.0, squash=None, center=0.0):
    r"""Learn from the supports one by one, with the step of each feature divided by its curvature.

    $$A_i = e^{g_i} A_{i-1} + \beta_i \phi_i^2, \quad
    S_i = e^{g_i} S_{i-1} + \eta \beta_i (y_i - e^{g_i} S_{i-1} \phi_i) (M_i \phi_i)^T$$

    Squares, quotients and products of the m features $\phi$ are channel by channel.
    $M_i = 1 / A_i$, or with `squash` s, $M_i = s^{-u_i / (1 + |u_i|)}$ with $u_i = \log A_i - c$,
    between $1 / s$ and $s$. For $M = 1 / A$, choose the step size with care: the error at $\phi_i$
    is multiplied by $1 - \eta \beta_i \sum_c \phi_{ic}^2 / A_{ic}$, and this sum can reach m.

    As weights, one head sums the squares before the first step, and a step takes one block; the
    slots `curvature` [T, m] and `written` [T, m] have the $A_i$ and $M_i \phi_i$.

    Args:
        initial: initial curvature $A_0$ > 0, a number or a vector [m].
        squash: base s > 1; default None: $M = 1 / A$.
        center: center c, used with `squash`.

    Source: Duchi, Hazan, Singer, Adaptive subgradient methods, 2011.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 2.0], x_query=[[1.0]])
    >>> path = preconditioned_delta_rule(Linear(), task, step_size=0.5)
    >>> path.along[-1].round(4).tolist()
    [0.0, 0.5, 0.75]
    """
    checks.positive_scalar("step_size", step_size)
    checks.positive("initial", initial)
    if squash is not None:
        checks.scalar("squash", squash)
        checks.satisfies("squash", squash, "> 1")
    checks.scalar("center", center)
    checks.finite("center", center)

    def step(token, S, A):
        A = token.gate * A + token.full_strength * token.phi**2
        A = jnp.maximum(A, jnp.finfo(A.dtype).tiny ** 0.8)
        if squash is None:
            M = 1 / A
        else:
            u = jnp.log(A) - center
            M = squash ** (-u / (1 + jnp.abs(u)))
        alpha = step_size * token.strength * token.error(S)
        return (S + jnp.outer(M * token.phi, alpha), A), alpha

    return lambda m, r: (initial_curvature(initial, m),), step


def initial_curvature(initial: Any, m: int) -> Any:
    if np.shape(initial) not in ((), (m,)):
        raise ValueError(
            f"initial must be a number or a vector [m] with m = {m} features, got shape "
            f"{list(np.shape(initial))}"
        )
    return xp.broadcast_to(as_constant(initial), (m,))


@rule
def kalman_delta_rule(*, ridge, process_noise=0.0, covariance="diagonal", info_scale=1.0):
    r"""Learn from the supports one by one, with the gains of a diagonal Kalman filter.

    $$\hat p_i = e^{2 g_i} p_{i-1} + \omega_i, \quad
    \kappa_i = \frac{\beta_i \hat p_i \phi_i}{\lambda + \beta_i \langle \hat p_i, \phi_i^2
    \rangle}, \quad S_i = e^{g_i} S_{i-1} + (y_i - e^{g_i} S_{i-1} \phi_i) \kappa_i^T$$
    $$1 / p_i = 1 / \hat p_i + s \beta_i \phi_i^2 / \lambda, \quad p_0 = 1$$

    Products and quotients of the m features $\phi$ are channel by channel; the covariance of the
    coefficients S is $\mathrm{diag}(p)$. The "isotropic" covariance $p I$ has the mean over
    channels of $e^{2 g_i}$ and $\phi_i^2$ in these two recurrences. The coefficients `alpha` are
    the errors.

    The model of the data is that of `prefix_posterior`; besides, coefficients are multiplied by
    $e^{g_i}$ and get noise of variance $\omega_i$ at every support. The exact filter has a full
    covariance $P$. For keys along one channel each, both agree; for others, the diagonal of
    $P^{-1}$ is exact and its inverse is not.

    As weights, a step takes 3 blocks: each gain depends on the precision before it, so the supports
    compute theirs in turn. The slot `change` has what each adds to $1 / p$, which one head sums,
    and the slot `gain` [T, m] has the $\kappa_i$.

    Args:
        process_noise: variance $\omega$ >= 0 that every support adds, a number or a vector [p].
        covariance: "diagonal" or "isotropic".
        info_scale: factor s > 0 of what a support adds to the precision $1 / p$.

    Source: Kalman, A new approach to linear filtering and prediction problems, 1960.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 4.0], x_query=[[1.0]])
    >>> kalman_delta_rule(Linear(), task, ridge=1.0).along[-1].round(4).tolist()
    [0.0, 1.0, 2.0]
    """
    checks.positive_scalar("ridge", ridge)
    checks.positive_scalar("info_scale", info_scale)
    checks.satisfies("process_noise", process_noise, ">= 0")
    checks.choice("covariance", covariance, ("diagonal", "isotropic"))

    def step(token, S, p):
        squares, decay = token.strength * token.phi**2, token.gate**2
        precision = squares
        if covariance == "isotropic":
            precision, decay = jnp.mean(squares, keepdims=True), jnp.mean(decay, keepdims=True)
        predicted = decay * p + token.number("process_noise", process_noise)
        gain = token.strength * predicted * token.phi / (ridge + jnp.sum(predicted * squares))
        alpha = jnp.where(token.learns, token.error(S), 0)
        updated = 1 / (1 / predicted + info_scale * precision / ridge)
        return (S + jnp.outer(gain, alpha), jnp.where(token.learns, updated, p)), alpha

    return lambda m, r: (np.ones(m if covariance == "diagonal" else 1),), step


def _as_task_dtype(task: Task, value: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, task.x.dtype), value)


def _iterates_from_kernel(function, choices, steps, task, kernel, spec, numbers):
    """All iterates of a `ErrorCorrection` rule, from the kernel and the coefficients before."""
    _, rule = function(**dict(choices), **_as_task_dtype(task, numbers))
    tokens, n = make_tokens(task, spec), task.num_supports
    diagonal = jnp.where(tokens.mask[:n], kernel.diagonal(tokens.x[:n]), 0)
    values = kernel(tokens.x, tokens.x[:n])
    earlier = _apply_decays(tokens, spec.replace(prefix="exclusive"), values)
    rates = rule.rate(tokens.strength, diagonal)

    def step(alpha, i):
        e = tokens.y[i] - matmul(earlier[i][None], alpha)[0]
        return alpha.at[i].set(rates[i] * rule.derivative(e)), None

    alpha, _ = jax.lax.scan(step, jnp.zeros_like(tokens.y), jnp.arange(n))
    path = jnp.where(_update_mask(tokens, steps)[:, :, None], alpha[None], 0)
    weights = earlier if spec.prefix == "exclusive" else _apply_decays(tokens, spec, values)
    finite = jnp.isfinite(path)  # an overflow spreads to the tokens that see it, and to no other
    overflows = matmul((weights != 0).astype(path.dtype), (~finite).astype(path.dtype)) > 0
    along = jnp.where(overflows, jnp.nan, matmul(weights, jnp.where(finite, path, 0)))
    return path, jnp.where(tokens.mask[None, :, None], along, 0)


def _apply_decays(tokens: Tokens, spec: PrefixSpec, values: jax.Array) -> jax.Array:
    """Kernel values times decays; 0 also where a value that no token sees overflows."""
    weights = decays(tokens, spec)
    return jnp.where(weights == 0, 0, weights * values)


def _iterates_from_state(function, choices, steps, task, kernel, spec, numbers):
    """All iterates of a rule of features."""
    start, rule = function(**dict(choices), **_as_task_dtype(task, numbers))
    tokens, n = make_tokens(task, spec), task.num_supports
    mask = tokens.mask
    phi = jnp.where(mask[:, None], kernel.feature_map(tokens.x), 0)
    gates = jnp.exp(tokens.log_gate.reshape(len(phi), -1))
    m, r = phi.shape[1], tokens.y.shape[1]
    states = _as_task_dtype(task, (np.zeros((m, r)), *(start(m, r) if start else ())))

    def step(states, each):
        token, real = each
        before = (token.gate[:, None] * states[0], *states[1:])
        after, alpha = rule(token, *before)
        read = before[0] if spec.prefix == "exclusive" else after[0]
        f = jnp.where(real, matmul(token.phi[None], read)[0], 0)
        states = jax.tree.map(lambda new, old: jnp.where(real, new, old), after, states)
        return states, (f, jnp.where(real, alpha, 0))

    def until(learns):
        strengths = jnp.where(learns, tokens.strength, 0), tokens.strength
        all_tokens = Token(phi[:n], tokens.y, gates[:n], *strengths, learns, tokens.x[:n])
        last, (along, alpha) = jax.lax.scan(step, states, (all_tokens, mask[:n]))
        return alpha, jnp.concatenate([along, matmul(gates[n:] * phi[n:], last[0])])

    return jax.vmap(until)(_update_mask(tokens, steps))


def _update_mask(tokens: Tokens, steps: int) -> Bool[Array, "L n"]:
    """Which supports each iterate has learned from: the first t that are not masked."""
    number = jnp.cumsum(tokens.mask[: len(tokens.y)])
    return number[None] <= jnp.arange(steps + 1)[:, None]
