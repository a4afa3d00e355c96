"""The delta rules: solvers that learn the supports one after the other, each from its error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .. import Kernel, Task, causal, checks
from ..causal import PrefixOptions
from ..constants import known, xp
from ..losses import Loss
from ..numerics import matmul, reciprocal
from ..tasks.task import check_axes
from .prefix import Sees, Tokens, decays, num_features, of_tokens, sees, solve, tokens_of
from .results import CausalTrajectory, recurrent


class Token(NamedTuple):
    """What a support brings to the recurrence of a rule of m features, for r outputs."""

    phi: Float[Array, " m"]
    y: Float[Array, " r"]
    gate: Float[Array, " c"]  # of each feature, or one for all
    strength: Float[Array, ""]  # 0 if the support does not learn yet
    learns: Bool[Array, ""]  # False after the number of the iterate
    own: dict[str, jax.Array]  # numbers that only some rules have


Rule = Callable[[Any, tuple, Token], tuple[tuple, jax.Array]]
"""(numbers, states, token) -> (new states, coefficients [r]). The first state is S [m, r], of which
the gates of the token have been taken already."""


@checks.suggesting
def delta_rule(
    kernel: Kernel,
    task: Task,
    *,
    step_size: float | Float[Array, ""],
    steps: int | None = None,
    normalised: bool = False,
    loss: Loss | None = None,
    erase: Float[Array, "m p"] | None = None,
    **options: Unpack[PrefixOptions],
) -> CausalTrajectory:
    r"""Learn the supports one by one, each from its error.

    $$\alpha_i = \eta_i (y_i - f_i), \quad f_i = \sum_{j < i} e^{G_i - G_j} k(x_i, x_j) \alpha_j$$

    The step size is $\eta_i = \eta \beta_i$, divided by $k(x_i, x_i)$ if `normalised`; $G_i$ is the
    sum of the log gates up to i. Iterate t has learned from the first t supports that are not
    masked. For the linear kernel, it is $f_i = e^{g_i} S_{i-1} x_i$ with the recurrence
    $S_i = e^{g_i} S_{i-1} + \alpha_i x_i^T$; without gates, $\alpha$ solves
    $(\mathrm{tril}(K, -1) + \eta^{-1} I) \alpha = y$. With a `window` of w, $S_i$ sums over
    $i - w < j \leq i$, and $\alpha_i$ corrects what $S_{i-1}$ predicts.

    `normalised` erases as a layer does that divides $q_i$ and $k_i$ by their lengths, but writes
    $y_i / |x_i|$ and reads at $x_i$: with $y_i = |k_i| v_i$ it has the state of that layer, and
    predicts $|k_i| o_i$.

    As weights, a step takes one block, or two with softmax attention, which multiplies by the
    normaliser first, and two more for `Huber` or three for `Power`. The states are alpha, ahead
    ($\alpha$ one step later, so that `alpha` and `prediction` belong together), turn (1 at the
    support that learns next) and prediction.

    Args:
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
    causal.check_delta(step_size, normalised, loss)
    numbers = step_size, loss, NORMALISED if normalised else PLAIN
    return learn(kernel, task, numbers, steps, options, erase)


@checks.suggesting
def implicit_delta_rule(
    kernel: Kernel,
    task: Task,
    *,
    step_size: float | Float[Array, ""],
    steps: int | None = None,
    **options: Unpack[PrefixOptions],
) -> CausalTrajectory:
    r"""Learn the supports one by one, each by an implicit step.

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
    return learn(kernel, task, (step_size, None, IMPLICIT), steps, options)


def learn(kernel, task, numbers, steps, options, erase=None):
    """The delta rule with the step sizes eta_i / (a + (b + c eta_i) k(x_i, x_i))."""
    degrees = 1 if numbers[1] is None else None  # losses take y in its own units
    if erase is not None or np.ndim(options.get("log_gate")) == 2:
        own = {} if erase is None else {"erase": erase}
        return follow(kernel, task, corrected, (), numbers, steps, options, own, degrees)
    check_axes(task)
    steps = task.num_supports if steps is None else steps
    given = sees(kernel, task, steps, options)
    return solve(task, coefficients, (steps,), recurrent, degrees, kernel, given, *numbers)


PLAIN, NORMALISED, IMPLICIT = (1, 0, 0), (0, 1, 0), (1, 0, 1)


def rate(eta: jax.Array, own: jax.Array, divisor: tuple) -> jax.Array:
    a, b, c = divisor
    return eta * reciprocal(a + (b + c * eta) * own)


def coefficients(steps, task, kernel, given, step_size, loss, divisor):
    tokens, n = tokens_of(task, given), task.num_supports
    own = jnp.where(tokens.kept[:n], kernel.diagonal(tokens.x[:n]), 0)
    values = kernel(tokens.x, tokens.x[:n])
    earlier = faded(tokens, given.replace(prefix="exclusive"), values)
    step_size, *divisor = (jnp.asarray(value, own.dtype) for value in (step_size, *divisor))
    sizes = rate(step_size * tokens.strength, own, tuple(divisor))

    def step(alpha, i):
        e = tokens.y[i] - matmul(earlier[i][None], alpha)[0]
        return alpha.at[i].set(sizes[i] * (e if loss is None else loss.derivative(e))), None

    alpha, _ = jax.lax.scan(step, jnp.zeros_like(tokens.y), jnp.arange(n))
    path = jnp.where(learned(tokens, steps)[:, :, None], alpha[None], 0)
    weights = earlier if given.prefix == "exclusive" else faded(tokens, given, values)
    finite = jnp.isfinite(path)  # an overflow spreads to the tokens that see it, and to no other
    lost = matmul((weights != 0).astype(path.dtype), (~finite).astype(path.dtype)) > 0
    along = jnp.where(lost, jnp.nan, matmul(weights, jnp.where(finite, path, 0)))
    return path, jnp.where(tokens.kept[None, :, None], along, 0)


def faded(tokens: Tokens, given: Sees, values: jax.Array) -> jax.Array:
    """Kernel values times decays; 0 also where a value that no token sees overflows."""
    weights = decays(tokens, given)
    return jnp.where(weights == 0, 0, weights * values)


def corrected(numbers, states, token):
    """The rule of features, with a gate of its own for each; it may erase at other vectors."""
    (eta, loss, divisor), (S,) = numbers, states
    e = error(states, token._replace(phi=token.own.get("erase", token.phi)))
    size = rate(eta * token.strength, jnp.sum(token.phi * token.phi), divisor)
    alpha = size * (e if loss is None else loss.derivative(e))
    return (S + jnp.outer(token.phi, alpha),), alpha


@checks.suggesting
def momentum_delta_rule(
    kernel: Kernel,
    task: Task,
    *,
    step_size: float | Float[Array, "..."],
    momentum: float | Float[Array, "..."],
    decay: float | Float[Array, "..."] = 1.0,
    steps: int | None = None,
    **options: Unpack[PrefixOptions],
) -> CausalTrajectory:
    r"""Learn the supports one by one, with momentum.

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
    causal.check_momentum(step_size, momentum, decay)
    own = {"step_size": step_size, "momentum": momentum, "decay": decay}
    M = np.zeros((num_features(kernel, task), task.num_outputs))
    return follow(kernel, task, heavy_ball, (M,), (), steps, options, own)


def heavy_ball(numbers, states, token):
    S, M = states
    eta, theta, decay = (token.own[name] for name in ("step_size", "momentum", "decay"))
    alpha = token.strength * error(states, token)
    M = theta * token.gate[:, None] * M + jnp.outer(token.phi, alpha)
    return (decay * S + eta * M, M), alpha


@checks.suggesting
def preconditioned_delta_rule(
    kernel: Kernel,
    task: Task,
    *,
    step_size: float | Float[Array, ""],
    initial: float | Float[Array, " m"] = 1.0,
    squash: float | Float[Array, ""] | None = None,
    center: float | Float[Array, ""] = 0.0,
    steps: int | None = None,
    **options: Unpack[PrefixOptions],
) -> CausalTrajectory:
    r"""Learn the supports one by one, with the step of each feature divided by its curvature.

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
    m, strength = num_features(kernel, task), options.get("strength")
    causal.check_curvature(initial, squash, center, m)
    numbers, A = (step_size, squash, center), xp.broadcast_to(known(initial), (m,))
    own = {"strength": 1.0 if strength is None else strength}  # also of supports yet to learn
    return follow(kernel, task, preconditioned, (A,), numbers, steps, options, own)


def preconditioned(numbers, states, token):
    (step_size, squash, center), (S, A) = numbers, states
    A = token.gate * A + token.own["strength"] * token.phi**2
    A = jnp.maximum(A, jnp.finfo(A.dtype).tiny ** 0.8)
    if squash is None:
        M = 1 / A
    else:
        u = jnp.log(A) - center
        M = squash ** (-u / (1 + jnp.abs(u)))
    alpha = step_size * token.strength * error(states, token)
    return (S + jnp.outer(M * token.phi, alpha), A), alpha


@checks.suggesting
def kalman_delta_rule(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    process_noise: float | Float[Array, " p"] = 0.0,
    covariance: str = "diagonal",
    info_scale: float | Float[Array, ""] = 1.0,
    steps: int | None = None,
    **options: Unpack[PrefixOptions],
) -> CausalTrajectory:
    r"""Learn the supports one by one, with the gains of a Kalman filter that keeps a diagonal only.

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
    causal.check_kalman(ridge, process_noise, covariance, info_scale)
    p = np.ones(num_features(kernel, task) if covariance == "diagonal" else 1)
    numbers, own = (ridge, info_scale), {"process_noise": process_noise}
    return follow(kernel, task, kalman, (p,), numbers, steps, options, own)


def kalman(numbers, states, token):
    (ridge, info_scale), (S, p) = numbers, states
    squares, kept = token.strength * token.phi**2, token.gate**2
    added = squares
    if len(p) == 1:
        added, kept = jnp.mean(squares, keepdims=True), jnp.mean(kept, keepdims=True)
    predicted = kept * p + token.own["process_noise"]
    gain = token.strength * predicted * token.phi / (ridge + jnp.sum(predicted * squares))
    alpha = jnp.where(token.learns, error(states, token), 0)
    after = 1 / (1 / predicted + info_scale * added / ridge)
    return (S + jnp.outer(gain, alpha), jnp.where(token.learns, after, p)), alpha


def error(states: tuple, token: Token) -> Float[Array, " r"]:
    """y - S phi, before the write."""
    return token.y - matmul(token.phi[None], states[0])[0]


def follow(kernel, task, rule, start, numbers, steps, options, own, degrees: Any = 1):
    """All iterates of a `Rule` of features, whose states after S = 0 start at those in `start`.

    The rule is a function of a module, because a program is compiled for it. In `own` are numbers
    or vectors [p] by name, of which each token has its own. The degrees are None if c y has not c
    times the predictions of y.
    """
    causal.no_window(options.get("window"))
    m = num_features(kernel, task)
    for name, value in own.items():
        if name == "erase":
            causal.check_erase(value, task.num_features, m)
        else:
            causal.check_of_token(name, value, task.num_features)
    steps = task.num_supports if steps is None else steps
    given = sees(kernel, task, steps, options, of_features=True)
    parts = kernel, given, start, numbers, own
    return solve(task, iterate, (rule, steps), recurrent, degrees, *parts)


def iterate(rule, steps, task, kernel, given, start, numbers, own):
    tokens, n = tokens_of(task, given), task.num_supports
    kept, dtype = tokens.kept, tokens.x.dtype
    phi = jnp.where(kept[:, None], kernel.feature_map(tokens.x), 0)
    gates = jnp.exp(tokens.log_gate.reshape(len(phi), -1))
    each = {name: of_tokens(tokens.x, kept, value)[:n] for name, value in own.items()}
    start, numbers = jax.tree.map(lambda value: jnp.asarray(value, dtype), (start, numbers))
    states = (jnp.zeros((phi.shape[1], tokens.y.shape[1]), dtype), *start)

    def step(states, each):
        token, real = each
        before = (token.gate[:, None] * states[0], *states[1:])
        after, alpha = rule(numbers, before, token)
        read = before[0] if given.prefix == "exclusive" else after[0]
        f = jnp.where(real, matmul(token.phi[None], read)[0], 0)
        states = jax.tree.map(lambda new, old: jnp.where(real, new, old), after, states)
        return states, (f, jnp.where(real, alpha, 0))

    def until(learns):
        strengths = jnp.where(learns, tokens.strength, 0)
        all_tokens = Token(phi[:n], tokens.y, gates[:n], strengths, learns, each)
        last, (along, alpha) = jax.lax.scan(step, states, (all_tokens, kept[:n]))
        return alpha, jnp.concatenate([along, matmul(gates[n:] * phi[n:], last[0])])

    return jax.vmap(until)(learned(tokens, steps))


def learned(tokens: Tokens, steps: int) -> Bool[Array, "L n"]:
    """Which supports each iterate has learned from: the first t that are not masked."""
    number = jnp.cumsum(tokens.kept[: len(tokens.y)])
    return number[None] <= jnp.arange(steps + 1)[:, None]
