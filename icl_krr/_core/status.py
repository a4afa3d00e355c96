r"""The status of a result: whether it is right, and if not, why and what helps.

Everything that returns numbers has a `Status`:

- Results of solvers and of `icl_krr.posterior` carry it as `.status`.
- `icl_krr.check` gives that of a model, also of an average over several regressions.
- `icl_krr.audit` gives that of plain numbers: evidences, leave-one-out errors, spectral bounds,
  Nadaraya-Watson, derivatives, gradients such as `jax.grad(loss)`, `icl_krr.predict`.

Its fields are arrays, so `jax.jit` and `jax.vmap` keep them, and `Status.advice` says them in one
sentence. A status that is not ok is also a warning, `icl_krr.StatusWarning`.

`ok` promises that the predictions at the queries differ from exact kernel ridge regression by at
most `TOLERANCE` = 0.01, relative to the larger of the largest $|f^\ast(x)|$ at the queries and the
largest $|y|$. `icl_krr.check` measures this *error*. A solver only estimates it, from quantities
that it has already computed. `icl_krr.audit` does not know the regression: its error is the
distance of all numbers from what the same function returns without rounding, relative to the
largest. The *gap* in tables and figures is another quantity, $|f - f^\ast| / |f^\ast|$ in the
Euclidean norm.

>>> import numpy as np
>>> import icl_krr as ik
>>> x = np.array([[0.0], [1.0], [2.0]])
>>> task = ik.Task(x=x, y=[1.0, 3.0, 2.0], x_query=x + 0.5)
>>> short = ik.constructions.richardson(ik.Gaussian(), num_features=1, ridge=0.1, steps=4)
>>> print(*ik.check(short, task).advice().split("; "), sep="\n")
not converged: error 0.085 after 4 steps
use more steps (16), float64 or a larger ridge
>>> print(ik.check(short.replace(steps=64), task).ok)
True
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .readable import readable

TOLERANCE = 1e-2
"""The largest error of a result that is ok."""

DIVERGED = 100.0
"""The error above which the solver counts as diverged: more steps do not help."""


@readable
class Status(NamedTuple):
    r"""How far a result can be trusted: scalars, or arrays [b] for a batch of results.

    Attributes:
        ok: whether the error is at most 0.01 and nothing left the range of the dtype.
        residual: relative residual $|y - A \alpha| / |y|$, the largest of all outputs; 0 for y = 0,
            and infinite if it cannot be computed.
        error: distance of the predictions from exact kernel ridge regression, divided by the larger
            of $|f^\ast|$ and $|y|$, where $|.|$ is the largest magnitude; infinite if it is not
            known. For a posterior it is the larger of the errors of mean and variance, and the
            variance is divided by $k(x, x)$. For an average over several regressions, it is the
            largest of the errors of the prediction and of the weights. Solvers do not measure it:
            theirs is an estimate from the residual, which can be many times too large.
        condition_times_eps: upper bound on the condition number of $A$, times the machine epsilon
            of the dtype. Above 1, the solution may have no correct digit.
        overflow: whether a kernel value is not finite in the dtype of the task.
        range: whether y is so small, or a coefficient or a prediction so large or so small, that
            it leaves the range of the dtype although all kernel values are finite.
        sink: whether a weight of the attention sink underflows: the softmax normaliser is lost.
        bound: whether a value exceeds the `bound` of an `icl_krr.ReLU`.
        negative: whether a variance is negative; in an ok status, this is a rounding error.
        falling: whether the residual still decreases, so that more steps help.
        uneven: whether the largest $k(x, x)$ of the supports is more than twice the smallest, so
            that points on a sphere lower the condition number.
        grows: whether a rule that learns the supports one by one diverges, or comes near to it: a
            prediction at a support is more than 100 times the largest $|y|$. The error of such
            a rule is the unit of rounding times that growth, and infinite above 100, because no
            regression is there to compare it with.
        steps: number of steps of the solver; 0 for a direct solution or a trained model.
        spectrum: whether the solver takes bounds on the eigenvalues of $A$.
        model: whether `icl_krr.check` measured the error of a model.
    """

    ok: Any
    residual: Any
    error: Any
    condition_times_eps: Any
    overflow: Any = False
    range: Any = False
    sink: Any = False
    bound: Any = False
    negative: Any = False
    falling: Any = False
    uneven: Any = False
    grows: Any = False
    steps: Any = 0
    spectrum: Any = False
    model: Any = False

    def advice(self) -> str:
        """Return a sentence that says whether the result is right, and if not, what helps most.

        For a batch, the sentence counts the results that are not ok and describes the worst one.

        >>> assess(0.25, 0.5, 1e-4, np.float32, falling=True, steps=16).advice()
        'not converged: error 0.5 after 16 steps; use more steps (64) or a larger ridge'
        """
        if np.ndim(self.ok) == 0:
            return _sentence(jax.tree.map(np.asarray, self))
        fields: Any = jax.tree.map(lambda field: np.ravel(np.asarray(field)), self)
        worst = int(np.argmax(np.where(fields.ok, -1.0, fields.error)))
        each = _sentence(jax.tree.map(lambda field: field[worst], fields))
        count, bad = len(fields.ok), int(np.sum(~fields.ok))
        if not bad:
            return f"all {count} results: {_sentence(Status(*(_worst(f) for f in fields)))}"
        return f"{bad} of {count} results are not right; the worst: {each}"


def _worst(field: np.ndarray) -> Any:
    return field.min() if field.dtype == bool and field.all() else field.max()


def assess(
    residual: Any,
    error: Any,
    condition_times_eps: Any,
    dtype: Any,
    *,
    uncertain: Any = 0.0,
    overflow: Any = False,
    range: Any = False,
    steps: int = 0,
    **flags: Any,
) -> Status:
    """Return the status; a NaN counts as infinite, and the error may lack `uncertain`."""
    inaccurate = ~(jnp.asarray(error) + uncertain <= TOLERANCE)
    numbers = (jnp.asarray(value, dtype) for value in (residual, error, condition_times_eps))
    residual, error, condition_times_eps = (jnp.where(jnp.isnan(v), jnp.inf, v) for v in numbers)
    status = Status(
        ok=~(inaccurate | overflow | range),
        residual=residual,
        error=error,
        condition_times_eps=condition_times_eps,
        overflow=overflow,
        range=range,
        steps=jnp.asarray(steps, jnp.int32),
        **flags,
    )
    return jax.tree.map(lambda field: jax.lax.stop_gradient(jnp.asarray(field)), status)


def _sentence(s: Status) -> str:
    or_float64 = "" if s.residual.dtype.itemsize >= 8 else ", or use float64"
    error = f"error {s.error:.2g}" + (f" after {s.steps} steps" if s.steps else "")
    notes = "; some values exceed the bound of the ReLU tables" if s.bound else ""
    if s.negative:
        notes += "; a variance is below 0" + (", clip it at 0" if s.ok else "")
    if s.ok:
        verdict = "converged" if s.steps else "accurate" if s.model else "solved"
        if not np.isfinite(s.residual) and s.condition_times_eps == 0:  # there is no system
            verdict = "no sign of divergence, but not a solution of a regression"
        return f"{verdict}: error {s.error:.2g}{notes}"
    if s.grows:
        return (
            "the rule diverges or comes near to it: predictions at supports exceed 100 times the "
            "largest |y| or are not finite; use a smaller step size or strength, "
            "icl_krr.constructions.implicit_delta_rule, or points x scaled down"
        )
    if s.overflow:
        return (
            f"the kernel overflows {s.residual.dtype}: scale x down or raise the temperature"
            f"{or_float64}{notes}"
        )
    if s.sink:
        return (
            "the weight of the attention sink underflows: use attention=icl_krr.Softmax(log_sink="
            "icl_krr.theory.log_sink(kernel, task)), or raise the temperature or lengthscale"
            f"{or_float64}{notes}"
        )
    if s.range:
        return (
            f"values of y or of the solver leave the range of {s.residual.dtype}: rescale y so "
            f"that its largest magnitude is about 1{or_float64}{notes}"
        )
    if np.isfinite(s.residual) and s.condition_times_eps == 0:
        return (
            f"not checked: the model does not know its kernel and ridge, or n is too large{notes}"
        )
    state = f"negative variance, {error}" if s.negative else error
    if s.bound:
        return (
            f"not accurate: {state}, and values exceed the bound of the ReLU tables; use "
            "bound=icl_krr.operand_bounds(model, task) of the model with exact arithmetic, and a "
            "larger width"
        )
    if not np.isfinite(s.error):
        state = "the result is not finite"
    if s.model and not s.steps:
        return (
            f"not accurate: {state}; the model has no solver steps: train it longer, or ask "
            "icl_krr.probes.identify which solver it runs"
        )
    ill_conditioned = s.condition_times_eps > TOLERANCE
    stuck = bool(s.steps) and not s.falling
    remedies = []
    diverging = stuck and s.error >= 1  # the solver diverges, or has hardly begun
    if diverging and s.spectrum:
        remedies.append("a spectrum with all eigenvalues (icl_krr.spectral_bounds)")
    hopeful = s.steps and s.error < DIVERGED
    longer = hopeful and (s.falling or diverging or not ill_conditioned)
    if longer:
        remedies.append(f"more steps ({4 * int(s.steps)})")
    if (ill_conditioned or stuck) and or_float64:
        remedies.append("float64" if longer or not hopeful else "float64 with more steps")
    if ill_conditioned and s.uneven:
        remedies += ["points on a sphere", "a larger temperature if the kernel has one"]
    remedies = [*remedies, "a larger ridge"][:3]
    remedies = " or ".join(filter(None, [", ".join(remedies[:-1]), remedies[-1]]))
    return f"not {'converged' if s.steps else 'accurate'}: {state}; use {remedies}"
