"""The compiler: weights of any solver compute what its function computes on plain arrays."""

import flax.serialization
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import draw as draw_task, kernel_matrix, relative
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from test_numpy_forward import describe, run

import icl_krr as ik
from icl_krr.solvers._run import iterate
from icl_krr.transformer._evaluate import embed_task

STEPS = 3
NUMBERS = st.sampled_from([-0.5, 0.7, 1.0])


@st.composite
def recipes(draw, matrices):
    """Two to five states, up to 12 operations, and the sums that are the next states.

    Of what `matrices` say of the kernel, predictions read K @ v and its average alone.
    """
    further = st.lists(st.sampled_from(["u", "v", "s"]), unique=True)
    states = ["alpha", "prediction", *draw(further)]
    vectors = [s for s in states if s not in ("s", "prediction")] + ["y"]
    scalars = ["s"] if "s" in states else []
    operations = []
    for k in range(draw(st.integers(1, 12))):
        kinds = [*matrices, "dot", "sum", "shift", "multiple", "product"]
        kind = draw(st.sampled_from(kinds + ["scale", "quotient", "scalars"] * bool(scalars)))
        pool = scalars if kind in ("quotient", "scalars") else vectors
        a, b = draw(st.sampled_from(pool[-3:])), draw(st.sampled_from(pool))
        s = draw(st.sampled_from(scalars)) if kind == "scale" else None
        operations.append((kind, f"t{k}", a, b, s, draw(NUMBERS)))
        (scalars if kind in ("dot", "quotient", "scalars") else vectors).append(f"t{k}")
    new = {}
    at_queries = [name for kind, name, *_ in operations if kind in ("kernel", "average")]
    for state in states:
        pool = scalars if state == "s" else vectors
        if state == "prediction" and set(matrices) - {"kernel", "average"}:
            pool = at_queries or ["y"]
        terms = draw(st.lists(st.sampled_from(pool[-4:]), max_size=2))
        new[state] = draw(st.sampled_from([None, 0.0, 0.5, 1.0])), terms
    return states, operations, new


def function_of(recipe):
    states, operations, new = recipe

    def random(K, y):
        def step(**old):
            values = {**old, "y": y}
            for kind, name, a, b, s, c in operations:
                a, b = values[a], values[b]
                values[name] = {
                    "kernel": lambda: K @ a if c == 1 else c * (K @ a),  # noqa: B023
                    "average": lambda: K.average @ a,  # noqa: B023
                    "diagonal": lambda: K.diagonal * a,  # noqa: B023
                    "jacobi": lambda: a / (K.diagonal + 0.5),  # noqa: B023
                    "smooth": lambda: K.normalised(0.6) @ a,  # noqa: B023
                    "sink": lambda: c * K.normalised(0.6).sink * a,  # noqa: B023
                    "normaliser": lambda: K.normalised(0.6).normaliser * a,  # noqa: B023
                    "dot": lambda: a @ b,  # noqa: B023
                    "sum": lambda: a + c * b,  # noqa: B023
                    "shift": lambda: a * c + (1 - c),  # noqa: B023
                    "scalars": lambda: a - c * b,  # noqa: B023
                    "multiple": lambda: c * a,  # noqa: B023
                    "product": lambda: a * b,  # noqa: B023
                    "scale": lambda: values[s] * a,  # noqa: B023
                    "quotient": lambda: a / (1 + b * b),  # noqa: B023
                }[kind]()
            result = {}
            for state, (coefficient, terms) in new.items():
                result[state] = old[state] if coefficient in (1, None) else coefficient * old[state]
                for term in terms:  # of one that starts at None, the value itself and no sum
                    total = 0.5 * values[term] + result[state]
                    result[state] = values[term] if coefficient is None else total
            return result

        zero, start = ("u", "prediction"), {}
        for k, s in enumerate(states):
            start[s] = y @ y if s == "s" else 0 if s in zero else (k + 1.0) / 2 * y
        return start, step

    return random


class Plain(np.ndarray):
    """An array of all tokens, or [1, r] of a scalar; sums run over the 5 supports."""

    mask = np.array([1, 1, 1, 1, 0, 1, 1.0])[:, None]

    def __add__(self, other):
        number = np.isscalar(other) and len(self) > 1
        return super().__add__(other * self.mask if number else other)

    def __truediv__(self, other):
        return np.divide(self, other, out=np.zeros_like(self * other), where=other != 0)

    def __matmul__(self, other):
        return np.sum((self * other)[:5], axis=0, keepdims=True)


class PlainMatrix:
    """A kernel matrix of all tokens and the supports; what it has of a token is a column."""

    def __init__(self, rows):
        self.rows, self.sums = rows, np.sum(rows, axis=1, keepdims=True)
        self.diagonal = np.append(np.diagonal(rows), np.zeros(2))[:, None].view(Plain)

    def __matmul__(self, v):
        return (self.rows @ np.asarray(v)[:5]).view(Plain)

    @property
    def average(self):
        return PlainMatrix(self.rows / np.where(self.sums == 0, 1, self.sums))

    def normalised(self, c):
        matrix = PlainMatrix(self.rows / (self.sums + c))
        matrix.sink, matrix.normaliser = c / (self.sums + c).view(Plain), (self.sums + c) / c
        return matrix


def on_plain_arrays(function, kernel, task):
    """All states after all steps; coefficients are zero at queries if no prediction reads them."""
    points = np.concatenate([task.x, task.x_query])
    mask = np.append(task.mask, np.ones(len(task.x_query), bool))[:, None]
    K = PlainMatrix(np.where(mask & task.mask[None], kernel_matrix(kernel, points, task.x), 0))
    y = np.where(mask, np.concatenate([task.y, np.zeros((len(task.x_query), task.y.shape[1]))]), 0)
    states, step = function(K, y.view(Plain))
    states = {s: 0 * y.view(Plain) if np.isscalar(v) else v for s, v in states.items()}
    for _ in range(STEPS):
        states = step(**states)
    return states


def on_weights(model, task):
    """The final stream, by the forward of NumPy."""
    with jax.disable_jit():
        start = jax.tree.map(np.asarray, embed_task(model, task))
    weights = jax.tree.map(np.asarray, flax.serialization.to_state_dict(model.weights))
    prologue, kind = len(model.weights.prologue), model.spec.attention
    mask = np.concatenate([[True], task.mask, np.zeros(task.num_queries, bool)])
    return [start, *run(weights, describe(model), start, mask, kind, prologue, model.steps)][-1]


DIAGONAL = ["kernel", "kernel", "kernel", "diagonal", "jacobi"]
NORMALISED = ["kernel", "smooth", "smooth", "sink", "normaliser"]
MACHINES = {
    "linear": (ik.Linear(), "linear", DIAGONAL),
    "softmax": (ik.Exponential(), ik.Softmax(log_sink=1.0), DIAGONAL),
    "normalised": (ik.Gaussian(), ik.Softmax(log_sink=0.5), NORMALISED),
    "average": (ik.Exponential(), "softmax", ["average", "average", "average"]),
}


@pytest.mark.parametrize("machine", MACHINES)
@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), outputs=st.sampled_from([1, 3]), seed=st.integers(0, 100))
def test_weights_equal_plain_arrays(x64, machine, data, outputs, seed):
    kernel, attention, matrices = MACHINES[machine]
    recipe = data.draw(recipes(matrices))
    draw = np.random.default_rng(seed)
    x, x_query = 0.3 * draw.normal(size=(5, 2)), 0.3 * draw.normal(size=(2, 2))
    y = draw.normal(size=(5, outputs))
    task = ik.Task(x=x, y=y, x_query=x_query, mask=np.arange(5) < 4)
    solver = ik.solver(function_of(recipe))
    sizes = {"num_features": 2, "num_outputs": outputs, "steps": STEPS}
    model = ik.compile(solver, kernel, attention=attention, **sizes)
    stream = on_weights(model, task)
    for state, value in on_plain_arrays(solver.function, kernel, task).items():
        ours, value = stream[state], np.asarray(value)
        if state == "prediction":
            ours, value = ours[-2:], value[-2:]
        elif state == "s":
            continue  # a softmax head has the mean where only quotients matter
        else:
            ours, value = ours[1:6], value[:5]
        assume(np.abs(value).max() < 1e8)  # rounding grows with the values in between
        assert np.allclose(ours, value, rtol=1e-10, atol=1e-10 * (1 + np.abs(value).max()))


def nesterov(K, y, *, ridge, step_size, momentum):
    def step(alpha, last, prediction):
        ahead = alpha + momentum * (alpha - last)
        K_ahead = K @ ahead
        alpha_next = ahead + step_size * (y - K_ahead - ridge * ahead)
        return dict(alpha=alpha_next, last=alpha, prediction=K @ alpha_next)

    return dict(alpha=0, last=0, prediction=0), step


def test_a_step_that_reads_old_values_only_is_one_block():
    def chain(K, y):
        def step(alpha, r, u, v, w, prediction):
            return dict(
                alpha=alpha + 0.1 * r,
                r=r - 0.1 * (K @ r),
                u=v + 0.5 * w,
                v=w - 0.5 * u,
                w=u + v + K @ alpha,
                prediction=0.9 * prediction + 0.1 * (K @ w),
            )

        return dict(alpha=0, r=y, u=y, v=0, w=y, prediction=0), step

    assert ik.compile(ik.solver(chain), ik.Linear(), num_features=2, steps=2).blocks_per_step == 1


@pytest.mark.parametrize("kernel", [ik.Linear(), ik.Gaussian()], ids=["linear", "softmax"])
def test_gradients_of_weights_are_those_of_arrays_and_finite_differences(x64, kernel):
    task, solver = draw_task(0, n=6), ik.solver(nesterov)

    @jax.jit
    @jax.value_and_grad
    def of_arrays(numbers):
        path = ik.run(solver, kernel, task, steps=4, **numbers)
        return jnp.sum(path.prediction[-1] ** 2)

    @jax.jit
    @jax.vmap
    @jax.value_and_grad
    def of_weights(numbers):
        model = ik.compile(solver, kernel, num_features=4, steps=4, **numbers)
        return jnp.sum(ik.predict(model, task) ** 2)

    numbers = {"ridge": 0.3, "step_size": 0.05, "momentum": 0.4}
    others = {**numbers, "ridge": 1.0}
    both = {name: np.array([value, others[name]]) for name, value in numbers.items()}
    (sizes, ours), (size, theirs) = of_weights(both), of_arrays(numbers)
    assert relative(sizes, [size, of_arrays(others)[0]]) < 1e-12
    for name, value in numbers.items():
        high, low = (of_arrays({**numbers, name: value + h})[0] for h in (1e-5, -1e-5))
        assert relative(ours[name][0], theirs[name]) < 1e-9
        assert relative(theirs[name], (np.asarray(high) - low) / 2e-5) < 1e-6


def test_numbers_of_each_step_and_one_program_for_all_numbers(x64):
    task, kernel, sizes = draw_task(1, n=6), ik.Gaussian(), np.array([0.1, 0.2, 0.3])

    @ik.solver
    def descent(K, y, *, sizes):
        eta = ik.per_step(sizes)
        return dict(r=y, prediction=0), lambda r, prediction: dict(
            r=r - eta * (K @ r), prediction=prediction + eta * (K @ r)
        )

    before = iterate._cache_size()
    paths = [ik.run(descent, kernel, task, steps=3, sizes=c * sizes) for c in (1.0, 0.5)]
    assert iterate._cache_size() == before + 1
    r = np.asarray(task.y)
    for eta in sizes:
        r = r - eta * np.asarray(kernel(task.x, task.x)) @ r
    assert relative(paths[0].r[-1], r) < 1e-12
    model = ik.compile(descent, kernel, num_features=4, steps=3, sizes=sizes)
    assert relative(ik.predict(model, task), paths[0].prediction[-1]) < 1e-12
    with pytest.raises(ValueError, match="per_step must have an entry for each of 4 steps"):
        ik.run(descent, kernel, task, steps=4, sizes=sizes)


def test_a_prediction_that_starts_at_y_and_a_held_value_with_the_name_of_a_state(x64):
    def function(K, y):
        r = K @ y
        return dict(alpha=0, r=y, prediction=y), lambda alpha, prediction, **old: dict(
            alpha=y - prediction, r=r, prediction=prediction + K @ old["r"]
        )

    task = draw_task(3, n=6)
    path = ik.run(ik.solver(function), ik.Gaussian(), task, steps=2)
    model = ik.compile(ik.solver(function), ik.Gaussian(), num_features=4, steps=2)
    assert relative(ik.run_with_cache(model, task)[1]["alpha"], path.alpha) < 1e-12


def test_float32():
    task = jax.tree.map(lambda array: array.astype("float32"), draw_task(2, n=6))
    numbers = {"ridge": 1.0, "steps": 3, "spectrum": (1.0, 9.0)}
    path = ik.run(ik.solvers.chebyshev, ik.Gaussian(), task, **numbers)
    model = ik.compile(ik.solvers.chebyshev, ik.Gaussian(), num_features=4, **numbers)
    assert path.alpha.dtype == ik.predict(model, task).dtype == "float32"
    assert relative(ik.predict(model, task), path.prediction[-1]) < 1e-5


START = dict(alpha=0, prediction=0)
REFUSED = {
    "a branch": (lambda K, y: (START, lambda **old: {} if y @ y else 0), "no truth value.*line"),
    "outer": (lambda K, y: (START, lambda **old: K @ (y @ y)), "multiplies a vector, got a scalar"),
    "order": (lambda K, y: (START, lambda **old: y @ K), "@ takes two vectors, .*: .*y @ K"),
    "power": (lambda K, y: (START, lambda **old: y**2), "index or function; line .* of test_comp"),
    "equal": (lambda K, y: (START, lambda **old: y == 0), "no comparison"),
    "shapes": (lambda K, y: (START, lambda **old: y + y @ y), "values of one shape, got a vector"),
    "method": (lambda K, y: (START, lambda **old: y.sum()), "but no 'sum'"),
    "text": (lambda K, y: (START, lambda **old: y + "a"), "takes values and numbers, got str"),
    "list": (lambda K, y: (START, lambda **old: y * [1.0]), "takes values and numbers, got list"),
    "scaled matrix": (lambda K, y: (START, lambda **old: 0.1 * K @ y), "write c \\* \\(K @ v\\)"),
    "transpose": (lambda K, y: (START, lambda **old: K.T @ y), "has no 'T'; line"),
    "forgotten": (lambda K, y: (START, lambda **old: {}), "return the states alpha.*line"),
    "other states": (lambda K, y: (START, lambda alpha: {}), "must take alpha, prediction: .*line"),
    "no prediction": (lambda K, y: ({"alpha": 0}, dict), "must have a state 'prediction'"),
    "no step": (lambda K, y: 3, "must return a dict of states and a step"),
    "start": (lambda K, y: ({**START, "s": "a"}, dict), "must start as a value or a number"),
    "shape": (
        lambda K, y: ({**START, "s": y}, lambda **old: {**old, "s": y @ y}),
        "'s' of <lambda> must keep its shape, a vector, got a scalar",
    ),
    "scalar": (
        lambda K, y: (START, lambda **old: {**old, "prediction": y @ y}),
        "prediction of <lambda> must be a vector",
    ),
    "diagonal at queries": (
        lambda K, y: (START, lambda **old: {**old, "prediction": K.diagonal * (K @ y)}),
        "K.diagonal, .* are known at the supports alone",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_program_is_refused_with_a_sentence(name):
    function, message = REFUSED[name]
    for call in (
        lambda: ik.run(ik.solver(function), ik.Linear(), draw_task(0), steps=1),
        lambda: ik.compile(ik.solver(function), ik.Linear(), num_features=4, steps=1),
    ):
        with pytest.raises(TypeError, match=message):
            call()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda K, **rest: 0, "must take K, y and keywords"),
        (lambda K, y, *, task: 0, "must take K, y and keywords"),
        (ik.solvers.chebyshev, "must be a function, by def or lambda"),
        (dict, "must be a function, by def or lambda"),
    ],
)
def test_what_is_no_solver_is_refused(function, message):
    with pytest.raises(TypeError, match=message):
        ik.solver(function)


def test_states_and_keywords_must_not_have_names_of_the_model():
    def taken(K, y):
        return dict(one=0, prediction=0), lambda **old: old

    with pytest.raises(ValueError, match="state 'one' of taken must have another name"):
        ik.run(ik.solver(taken), ik.Linear(), draw_task(0), steps=1)
    with pytest.raises(TypeError, match="keyword 'sketch' must have another name"):
        ik.compile(ik.solver(lambda K, y, sketch: 0), ik.Linear(), num_features=4, sketch=1)


def test_values_of_another_run_are_refused():
    values = []

    def leaks(K, y):
        values.append(K @ y)  # the function runs more than once
        return dict(prediction=0), lambda prediction: dict(prediction=values[0])

    with pytest.raises(TypeError, match="values of a solver must be its own"):
        ik.run(ik.solver(leaks), ik.Linear(), draw_task(0), steps=1)


def test_a_held_product_with_the_normaliser_of_several_patterns(x64):
    def smoother(K, y):
        N = K.normalised(1.0)
        return dict(alpha=0, prediction=0), lambda alpha, prediction: dict(
            alpha=alpha + N @ y, prediction=K @ alpha
        )

    task = draw_task(3, n=6)
    path = ik.run(ik.solver(smoother), ik.Matern32(), task, steps=2)
    model = ik.compile(ik.solver(smoother), ik.Matern32(), num_features=4, steps=2)
    assert relative(ik.run_with_cache(model, task)[1]["alpha"], path.alpha) < 1e-4


def test_the_status_needs_no_matrix_in_the_solver_and_knows_defaults():
    def shrunk(K, y, ridge=0.5):
        return dict(alpha=0, prediction=0), lambda alpha, prediction: dict(
            alpha=y / (1 + ridge), prediction=K.average @ alpha
        )

    assert not ik.run(ik.solver(shrunk), ik.Gaussian(), draw_task(0), steps=1).status.ok


def test_arrays_and_two_sinks_are_refused():
    def by_array(K, y):
        return dict(prediction=0), lambda prediction: dict(prediction=np.ones(3) * (K @ y))

    def sinks(K, y):
        both = K.normalised(0.5) @ y + K.normalised(0.7) @ y
        return dict(r=y, prediction=0), lambda r, prediction: dict(r=r - both, prediction=K @ r)

    with pytest.raises(ValueError, match=r"must be scalars, got shape \[3\]; per_step"):
        ik.run(ik.solver(by_array), ik.Gaussian(), draw_task(0), steps=1)
    for function, message in ((by_array, "must be scalars"), (sinks, "one weight of the sink")):
        with pytest.raises(ValueError, match=message):
            ik.compile(ik.solver(function), ik.Gaussian(), num_features=4, steps=1)
