"""The compiler: weights of random solvers compute what the same functions compute on arrays."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import icl_krr as ik

VECTORS, SCALARS = ("alpha", "prediction", "u", "v"), ("s",)
STEPS = 3


@st.composite
def recipes(draw):
    """Up to 12 operations on 2 to 5 states, and which values the states become."""
    states = ["alpha", "prediction", *draw(st.lists(st.sampled_from(["u", "v", "s"]), unique=True))]
    vectors = [s for s in states if s != "s" and s != "prediction"] + ["y"]
    scalars = ["s"] if "s" in states else []
    operations = []
    for k in range(draw(st.integers(1, 12))):
        kinds = ["K", "dot", "sum", "multiple", "product"]
        kinds += ["scale", "quotient", "add"] if scalars else []
        kind, name = draw(st.sampled_from(kinds)), f"t{k}"
        pool = scalars if kind in ("quotient", "add") else vectors
        a, b = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        s = draw(st.sampled_from(scalars)) if kind == "scale" else None
        operations.append((kind, name, a, b, s, draw(st.sampled_from([-0.5, 0.3, 0.7, 1.0]))))
        (scalars if kind in ("dot", "quotient", "add") else vectors).append(name)
    new = {}
    for state in states:
        pool = scalars if state == "s" else vectors
        own = draw(st.sampled_from([0.0, 0.5, 1.0])) if state != "s" or scalars else 1.0
        terms = draw(st.lists(st.sampled_from(pool), max_size=2)) if pool else []
        new[state] = (own, terms)
    return states, operations, new


def solver_of(recipe):
    states, operations, new = recipe

    def function(K, y):
        def step(**old):
            values = {**old, "y": y}
            for kind, name, a, b, s, c in operations:
                a, b = values[a], values[b]
                if kind == "K":
                    values[name] = c * (K @ a)
                elif kind == "dot":
                    values[name] = a @ b
                elif kind in ("sum", "add"):
                    values[name] = a + c * b
                elif kind == "multiple":
                    values[name] = c * a
                elif kind == "product":
                    values[name] = a * b
                elif kind == "scale":
                    values[name] = values[s] * a
                else:
                    values[name] = a / (1 + b * b)
            result = {}
            for state, (own, terms) in new.items():
                total = own * old[state] if own != 1 else old[state]
                if own == 0 and terms:
                    total = 0
                for term in terms:
                    total = 0.5 * values[term] + total
                result[state] = total
            return result

        start = {
            state: y @ y if state == "s" else (k + 1.0) / 2 * y for k, state in enumerate(states)
        }
        return {**start, "prediction": 0}, step

    return ik.solver(function)


@pytest.mark.parametrize("attention", ["linear", "softmax"])
@pytest.mark.parametrize("outputs", [1, 3])
@settings(max_examples=60, deadline=None)
@given(recipe=recipes(), seed=st.integers(0, 100))
def test_weights_equal_arrays(x64, attention, outputs, recipe, seed):
    draw = np.random.default_rng(seed)
    x, y = 0.3 * draw.normal(size=(5, 2)), draw.normal(size=(5, outputs))
    task = ik.Task(x=x, y=y, x_query=0.3 * draw.normal(size=(2, 2)), mask=np.arange(5) < 4)
    kernel = ik.Linear() if attention == "linear" else ik.Exponential()
    solver = solver_of(recipe)
    path = ik.run(solver, kernel, task, steps=STEPS)
    model = ik.compile(solver, kernel, num_features=2, num_outputs=outputs, steps=STEPS)
    prediction, cache = ik.run_with_cache(model, task)
    assert close(prediction, path.prediction[-1])
    for state in recipe[0]:
        if state not in ("prediction", "s"):
            assert close(np.asarray(cache[state])[:, :5], path[state])


def close(a, b):
    return np.allclose(a, b, rtol=1e-10, atol=1e-10 * (1 + np.max(np.abs(b))), equal_nan=True)
