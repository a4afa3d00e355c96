"""Samplers, tables, and the refusal of bad input."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import cg, draw, kernel_matrix, numpy

import icl_krr as ik
from icl_krr.tasks import _task as checking, read_table, sample, split


def test_gaussian_process_has_the_kernel_as_covariance(x64):
    """Second moments over draws of f at fixed inputs; the inputs follow from the key alone."""
    kernel, sizes = ik.Exponential(1.0), {"num_supports": 3, "num_queries": 1}
    options = {"noise": 0.0, "inputs": "sphere", "num_outputs": 20000}
    config = ik.tasks.GaussianProcess(kernel, **sizes, **options)
    task = numpy(sample(jax.random.key(0), config))
    f = np.concatenate([task.y, task.y_query])
    x = np.concatenate([task.x, task.x_query])
    assert np.allclose(np.sum(x**2, -1), 1)
    covariance = np.asarray(f @ f.T) / 20000
    assert np.allclose(covariance, kernel_matrix(kernel, x, x), atol=5 * 3 / np.sqrt(20000))
    noisy = numpy(sample(jax.random.key(0), dataclasses.replace(config, noise=0.5)))
    assert np.isclose(np.var(noisy.y - task.y), 0.5, rtol=0.03)
    assert np.array_equal(noisy.y_query, task.y_query)


def test_gaussian_process_of_a_singular_kernel():
    """The linear kernel's Gram matrix has rank p: no jitter is needed to draw from it."""
    config = ik.tasks.GaussianProcess(ik.Linear(), noise=0.0, num_supports=40)
    task = numpy(sample(jax.random.key(1), config))
    w, *_ = np.linalg.lstsq(np.asarray(task.x), np.asarray(task.y))
    assert np.allclose(task.x @ w, task.y, atol=1e-4)


def test_linear_regression_has_the_spectrum_it_is_asked_for(x64):
    config = ik.tasks.LinearRegression(num_features=5, num_supports=20000, condition=100.0)
    task = numpy(sample(jax.random.key(2), config))
    spectrum = np.linalg.eigvalsh(np.asarray(task.x.T @ task.x) / 20000)
    assert np.allclose(spectrum, 100.0 ** -np.linspace(1, 0, 5), rtol=0.08)
    sizes, spectrum = {"num_features": 2, "num_supports": 20000}, np.array([4.0, 0.25])
    chosen = ik.tasks.LinearRegression(**sizes, spectrum=spectrum, noise=0.0)
    task = numpy(sample(jax.random.key(3), chosen))
    spectrum = np.linalg.eigvalsh(np.asarray(task.x.T @ task.x) / 20000)
    assert np.allclose(spectrum, [0.25, 4.0], rtol=0.05)
    w, *_ = np.linalg.lstsq(np.asarray(task.x), np.asarray(task.y))
    assert np.allclose(task.x_query @ w, task.y_query)


def test_each_task_draws_one_of_the_condition_numbers():
    several = ik.tasks.LinearRegression(num_features=3, num_supports=400, conditions=(1.0, 100.0))
    tasks = ik.experiments.draw_tasks(jax.random.key(0), 64, several)
    sigma = np.linalg.svd(np.asarray(tasks.x), compute_uv=False) ** 2
    condition = sigma[:, 0] / sigma[:, -1]
    assert 16 < np.sum(condition < 3) == np.sum(condition < 30) < 48
    for bad, words in (((1.0, 0.5), ">= 1 and finite, got 0.5"), ((), ">= 1, got 0")):
        with pytest.raises(ValueError, match=f"conditions must be {words}"):
            ik.tasks.LinearRegression(conditions=bad)


def test_samplers_are_pure_and_batch():
    config = ik.tasks.LinearRegression(num_outputs=2)
    keys = jax.random.split(jax.random.key(0), 3)
    tasks = jax.jit(jax.vmap(sample, in_axes=(0, None)))(keys, config)
    assert tasks.y.shape == (3, 64, 2)
    assert np.allclose(tasks.x[1], sample(keys[1], config).x, atol=1e-5)
    assert not np.allclose(tasks.x[0], tasks.x[1])


def test_the_shipped_table():
    table = ik.tasks.diabetes()
    from sklearn.datasets import load_diabetes

    theirs = load_diabetes(scaled=False)
    assert np.allclose(table.x, theirs.data, rtol=1e-15, atol=0)
    assert np.array_equal(table.y, theirs.target)
    assert table.features == tuple(theirs.feature_names)
    assert table.target == "progression"


def test_split_standardises_on_the_supports_alone(x64):
    table = ik.tasks.diabetes()
    task = split(table, num_supports=100, seed=3)
    for values in (task.x, task.y):
        assert np.allclose(values.mean(0), 0, atol=1e-12)
        assert np.allclose(values.std(0), 1)
    assert not np.allclose(task.x_query.mean(0), 0, atol=1e-3)
    for seed in (3, 4):
        again = split(table, num_supports=100, seed=seed)
        assert np.array_equal(task.x, again.x) == (seed == 3)
    x = np.concatenate([task.x, task.x_query])[:, 2]  # every row is used once
    assert len(x) == 442
    assert len(np.unique(x.round(9))) == len(np.unique(table.x[:, 2]))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.csv"


def test_a_constant_column_is_only_centred(path):
    path.write_text("a,b,y\n" + "".join(f"{i},0.1,{i * i}\n" for i in range(9)))
    task = split(read_table(path, "y"), num_supports=5)
    assert np.allclose(task.x[:, 1], 0, atol=1e-12)
    assert np.all(np.isfinite(task.x_query))


def test_tables_as_spreadsheets_write_them(path):
    path.write_bytes(b'\xef\xbb\xbf"a", b ,y\r\n1,2,3\r\n\r\n4,5e0, 6\r\n')
    table = read_table(path, "y")
    assert table.features == ("a", "b")
    assert table.x.tolist() == [[1, 2], [4, 5]]
    assert table.y.tolist() == [3, 6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,y\n", "must have rows of numbers below its header"),
        ("a,b\n1,2\n", r"target must be a column of .* \(a, b\), got 'y'"),
        ("a,a,y\n1,2,3\n", "must name each column once, got 'a' more than once"),
        ("y\n1\n", "must have a feature column besides 'y'$"),
        ("a;y\n1,5;2,5\n", r"header has \(1\), got 3; separate the .* commas instead of ';'"),
        ("a;y\n1;2\n", r"got 'y'; separate the cells with commas instead of ';'$"),
        ("a,y\n1,2\n3\n", r"line 3: expected as many cells as the header has \(2\), got 1"),
        ("a,y\n1,2\nred,3\n", "line 3, column 'a': expected a finite number, got 'red'"),
        ("a,y\n1," + "x" * 400 + "\n", r"column 'y': expected a .*, got 'x{40,60}\.\.\.x{40,60}'"),
        (",a,y\n0,1,2\n", "must name every column, got '', 'a', 'y'"),
        ("a,y\n1,2\n1_300,2\n", "line 3, column 'a': expected a finite number, got '1_300'"),
        ("a,y\n1,nan\n", "line 2, column 'y': expected a finite number, got 'nan'"),
        (b"\x89PNG\r\n\x1a\n\x00\xff\xfe".decode("latin-1"), "must be comma-separated UTF-8 text"),
    ],
)
def test_tables_refuse(path, text, message):
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=message):
        read_table(path, "y")
    with pytest.raises(FileNotFoundError):
        read_table(path.with_name("missing.csv"), "y")


@pytest.mark.parametrize("n", [0, 442, 1000])
def test_split_needs_a_support_and_a_query(n):
    with pytest.raises(ValueError, match="num_supports must"):
        split(ik.tasks.diabetes(), num_supports=n)


def test_kernels_batch_by_vmap():
    kernels = ik.Exponential(np.array([0.5, 2.0]))
    x = np.ones((5, 2))
    grams = jax.jit(jax.vmap(lambda kernel: kernel(x, x)))(kernels)
    assert np.allclose(grams[1], ik.Exponential(2.0)(x, x))


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1e306])
def test_the_scale_of_a_column_does_not_matter(scale):
    """The squares of such values overflow or vanish; the standardised column is the same."""
    y = np.random.default_rng(0).normal(size=30)
    x = np.arange(30.0)[:, None]
    tables = [ik.tasks.Table(x * s, y * s, ("a",), "y") for s in (1.0, scale)]
    plain, scaled = (ik.tasks.split(table, 20) for table in tables)
    for name in ("x", "y", "x_query", "y_query"):
        assert np.allclose(getattr(plain, name), getattr(scaled, name), rtol=1e-5)


def test_values_that_the_dtype_cannot_hold_are_refused_only_where_they_count(x64):
    """Masked supports do not count, and float64 can hold what float32 cannot."""
    x, y, mask = np.ones((3, 1)), np.array([1.0, 2.0, 1e200]), np.array([True, True, False])
    assert ik.Task(x=x, y=y, x_query=x).y[2] == 1e200
    with pytest.raises(ValueError, match=r"y must be in the range of float64.*; rescale y$"):
        ik.Task(x=x, y=y * 0 + 1e-310, x_query=x)
    with jax.enable_x64(False):
        assert not np.isfinite(ik.Task(x=x, y=y, x_query=x, mask=mask).y[2])


@pytest.mark.parametrize("dtype", [">f4", ">f8", "longdouble"])
def test_a_task_takes_numbers_in_any_form(dtype):
    x = np.arange(4.0).reshape(2, 2).astype(dtype)
    task = ik.Task(x=x, y=x[0], x_query=x)
    assert task.x.dtype == "float32"
    assert task.x.tolist() == [[0.0, 1.0], [2.0, 3.0]]


class Foreign:
    """A tensor of another library: NumPy reads it, and it is neither a list nor an array."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return self.values


def test_a_task_takes_lists_and_what_numpy_reads():
    x, y, x_query, mask = [[0, 1], [1, 2], [2, 4]], [1, 2, 3], [[0.5, 1]], [True, False, True]
    expected = ik.Task(*(np.asarray(part, float) for part in (x, y, x_query)), np.asarray(mask))
    for convert in (lambda part: part, np.asarray, Foreign, tuple):
        task = ik.Task(*map(convert, (x, y, x_query, mask)))
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(task))
        dtypes = [[a.dtype for a in jax.tree.leaves(tree)] for tree in (task, expected)]
        assert dtypes[0] == dtypes[1]
        assert jax.tree.all(jax.tree.map(np.array_equal, task, expected))
        assert np.array_equal(task.replace(y=convert([3, 4, 5])).y, np.array([3.0, 4, 5]))


@pytest.mark.extras
def test_a_task_takes_tensors_of_pytorch():
    torch = pytest.importorskip("torch")
    x, y = torch.arange(6.0).reshape(3, 2), torch.tensor([1, 2, 3])
    task = ik.Task(x, y, x[:1], torch.tensor([True, False, True]))
    assert [leaf.dtype.name for leaf in jax.tree.leaves(task)] == [*["float32"] * 3, "bool"]
    assert task.x.tolist() == x.tolist()
    for value in (x.clone().requires_grad_(), x.bfloat16()):
        with pytest.raises(TypeError, match=r"got Tensor; use x\.detach\(\)\.cpu\(\)\.float\(\)"):
            ik.Task(value, y, x[:1])
        assert ik.Task(value.detach().cpu().float(), y, x[:1]).x.shape == (3, 2)


def test_a_task_leaves_what_jax_has_as_it_is():
    """In transformations too, where a list of traced numbers has no value to convert."""
    task = ik.Task([[0], [1]], [1, 2], [[1]])
    assert task.replace(y=(y := jnp.ones(2))).y is y
    assert jax.tree.map(jnp.shape, task).x == (2, 1)  # no check: these are no arrays
    predict = lambda task: jnp.sum(ik.solvers.exact(ik.Linear(), task, ridge=1.0).prediction)  # noqa: E731
    assert jax.grad(predict)(task).x.shape == jax.jit(jax.grad(predict))(task).x.shape == (2, 1)
    with pytest.raises(TypeError, match="an array inside JAX transformations, got list; use jnp"):
        jax.jit(lambda a: task.replace(y=[a, a]))(1.0)
    with pytest.raises(TypeError, match="x must be floating point, got int32"):
        task.replace(x=jnp.array([[0], [1]]))


def test_a_task_is_checked_once_and_any_other_one_again(monkeypatch):
    task, model = draw(0).replace(), cg(draw(0), 0.5, 1)  # arrays of JAX
    ik.predict(model, task)  # compiles
    checked, check = [], checking.check_task
    monkeypatch.setattr(checking, "check_task", lambda *args: checked.append(check(*args)))
    ik.predict(model, task)
    assert not checked
    worse = jax.tree.map(lambda leaf: leaf / 0, task)
    for _ in range(2):
        with pytest.raises(ValueError, match="must be finite"):
            ik.predict(model, worse)
    assert not hasattr(worse, "valid")
    numpy_task = jax.tree.map(np.array, task)  # which its owner can change
    ik.predict(model, numpy_task)
    numpy_task.y[0] = np.nan
    with pytest.raises(ValueError, match="y must be finite"):
        ik.predict(model, numpy_task)
