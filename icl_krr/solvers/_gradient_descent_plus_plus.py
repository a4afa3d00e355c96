"""GD++: gradient descent on features that a preconditioner changes at every step."""

from .._core import checks
from ._run import solver


@solver
def gradient_descent_plus_plus(K, y, *, step_size, curvature):
    r"""Minimise the squared error by GD++: gradient descent with a transformation of the features.

    $$r_{t+1} = r_t - \eta X_t X_t^T r_t, \quad f_{t+1}(x) = f_t(x) + \eta x_t^T X_t^T r_t, \quad
    X_{t+1} = X_t (I - c X_t^T X_t)$$

    Every step multiplies the features of the supports and of the queries by the same matrix
    $I - c X_t^T X_t$. There is no ridge, as early stopping regularises the solution, and no alpha;
    `r` is $y - f_t$ at the supports.

    Args:
        step_size: step size $\eta$ > 0 of gradient descent.
        curvature: step size $c$ >= 0 of the transformation of the features; 0 is plain gradient
            descent.

    Source: von Oswald et al., Transformers learn in-context by gradient descent, 2023.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> path = gradient_descent_plus_plus(Linear(), task, steps=2, step_size=0.5, curvature=0.5)
    >>> path.prediction[:, 0].tolist()
    [0.0, 2.0, 2.25]
    """
    checks.positive_scalar("step_size", step_size)
    checks.nonnegative_scalar("curvature", curvature)

    def step(r, features, prediction):
        X = K.inner(features, features)
        fall = X @ r
        return dict(
            r=r - step_size * fall,
            features=features - curvature * (X @ features),
            prediction=prediction + step_size * fall,
        )

    return dict(r=y, features=K.features, prediction=0), step
