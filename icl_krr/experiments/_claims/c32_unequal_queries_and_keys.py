"""C32: attention with unequal W_Q and W_K is a smoother, but its scores are no kernel."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, constructions, theory
from ..._core.linalg import eigh
from ..._core.numerics import matmul
from ...residual import Read, embed
from ...tasks import Task
from ...transformer import Block, Heads, Transformer, predict, predict_batch
from ...transformer._resume import unrolled_blocks
from .._shared.runs import load
from .claim import HOLDS, TASK_FAMILY, Checks, Claim, Config, stated
from .measuring import Plot, Rows, draw_tasks, every, gap, tidy

TEMPERATURE = 4.0
PARTS = ("all", "symmetric", "symmetric, no negative eigenvalues", "antisymmetric")

FORMS = ("W_Q = W_K", "W_Q = W_K, key bias", "W_Q = W_K, both biases", "indefinite", "unequal")
EQUAL, KEY_BIAS, BIASES, INDEFINITE, UNEQUAL = range(5)


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    results = measure(key, config)
    change, cycle, solver, pair = results.change, results.cycle, results.solver, results.pair
    smooth = results.smoother[:, :INDEFINITE]
    columns = {"asymmetry of the scores": cycle, "change by biases or weights": change}
    columns["gap of conjugate gradient"] = solver
    rows = tidy({"draw": range(config.draws), "weights": FORMS}, **columns)
    checks = {
        "|head - sum_j s(x, x_j) y_j / sum_j s(x, x_j)| / |y|_max <= 1e-12, "
        "s(x, z) = exp(<W_Q x, W_K z> / temperature)": stated(results.head),
        "change of the head by a key bias <= 1e-12": change[:, KEY_BIAS],
        "change of the head by a query bias, median, >= 1 %": np.median(change[:, BIASES]),
        "W_Q = W_K, any biases: |head - smoother of c(x) k(x, z) c(z)| / |y|_max <= 1e-12": smooth,
        "W_Q = W_K, any biases: -(smallest / largest eigenvalue) of c(x) k(x, "
        "z) c(z) <= 1e-12": -results.lowest[:, :INDEFINITE],
        "indefinite W_Q^T W_K, points u and -u: |smallest eigenvalue - 2 sinh(mu / temperature)| "
        "<= 1e-12": abs(pair - results.expected),
        "indefinite W_Q^T W_K, points u and -u: smallest eigenvalue <= 0": pair,
        "symmetric W_Q^T W_K, any biases: |log of s_12 s_23 "
        "s_31 / (s_21 s_32 s_13)| / largest logit <= 1e-12": cycle[:, :UNEQUAL],
        "unequal W_Q and W_K: |log of s_12 s_23 s_31 / (s_21 s_32 s_13)| / largest logit "
        ">= 0.01 for some three supports": cycle[:, UNEQUAL],
        "W_Q = W_K: gap of conjugate gradient to (K + ridge I)^-1 y <= 1e-6": solver[:, EQUAL],
        "unequal W_Q and W_K: gap of conjugate gradient to (S + ridge I)^-1 y, "
        "median, >= 5 %": np.median(solver[:, UNEQUAL]),
    }
    for name in config.runs:
        more, trained_rows = trained(name, config.tasks, key)
        rows, checks = rows + more, checks | trained_rows
    return rows, checks


@every()
def measure(key: jax.Array, config: Config) -> dict[str, jax.Array]:
    """Compare the models with direct formulas [draw, form]; the last feature of x is 1."""
    p, n, q = config.num_features, config.num_supports, config.num_queries
    points, outputs, weights, biases = jax.random.split(key, 4)
    x = jnp.pad(jax.random.normal(points, (n + q, p)), ((0, 0), (0, 1)), constant_values=1)
    task = Task(x=x[:n], y=jax.random.normal(outputs, (n,)), x_query=x[n:])
    square = jax.random.normal(weights, (2, p, p)) / np.sqrt(p)
    plain, other = jnp.pad(square, ((0, 0), (0, 1), (0, 1)))
    b_query, b_key = jnp.pad(jax.random.normal(biases, (2, p, 1)), ((0, 0), (0, 1), (p, 0)))
    w_query = jnp.stack([plain, plain, plain + b_query, plain.at[0].multiply(-1), plain])
    w_key = jnp.stack([plain, plain + b_key, plain + b_key, plain, other])
    kernel = Exponential(TEMPERATURE)
    options = {"ridge": config.ridge, "steps": 2 * n, "attention": "softmax"}
    smoother = constructions.nadaraya_watson(kernel, num_features=p + 1)
    solver = constructions.conjugate_gradient(kernel, num_features=p + 1, **options)

    size = jnp.max(jnp.abs(task.y))

    def form(w_query: jax.Array, w_key: jax.Array) -> dict[str, jax.Array]:
        head, steps = (project(model, w_query, w_key) for model in (smoother, solver))
        prediction, square = predict(head, task), logits(head, task)[:n]
        product = matmul(w_query.T, w_key) / TEMPERATURE
        # the key bias multiplies rows, the query bias columns: if the rows are multiplied by the
        # factors of the columns instead, the softmax is the same
        turned = product.at[:-1, -1].set(product[-1, :-1])
        scores, balanced = (jnp.exp(x @ each @ x[:n].T) for each in (product, turned))
        smoothed, smooth = (s[n:] @ task.y / jnp.sum(s[n:], axis=1) for s in (scores, balanced))
        sigma, odd = jnp.linalg.eigvalsh(balanced[:n]), square - square.T
        # entry i belongs to the three supports i, i + 1 and i + 2
        shifts = (0, 1), (1, 2), (2, 0)
        cycle = sum(jnp.diagonal(jnp.roll(odd, (-i, -j), axis=(0, 1))) for i, j in shifts)
        alpha = jnp.linalg.solve(scores[:n] + config.ridge * jnp.eye(n), task.y)
        return {
            "prediction": prediction,
            "head": jnp.max(jnp.abs(prediction - smoothed)) / size,
            "smoother": jnp.max(jnp.abs(prediction - smooth)) / size,
            "lowest": sigma[0] / sigma[-1],
            "cycle": jnp.max(jnp.abs(cycle)) / jnp.max(jnp.abs(square)),
            "solver": gap(predict(steps, task), scores[n:] @ alpha),
        }

    errors = jax.vmap(form)(w_query, w_key)
    change = jnp.abs(errors["prediction"] - errors["prediction"][EQUAL][None])
    # the points u and -u along the eigenvector of the smallest eigenvalue
    indefinite = w_query[INDEFINITE], w_key[INDEFINITE]
    matrix = matmul(indefinite[0].T, indefinite[1])[:-1, :-1]
    u = jnp.pad(eigh(matrix)[1][:, 0], (0, 1))
    opposite = Task(x=jnp.stack([u, -u]), y=jnp.ones(2), x_query=u[None])
    pair = jnp.exp(logits(project(smoother, *indefinite), opposite)[:2])
    return errors | {
        "change": jnp.max(change, axis=1) / size,
        "pair": jnp.linalg.eigvalsh(pair)[0],
        "expected": theory.opposite_pair_eigenvalue(matrix, TEMPERATURE),
    }


def project(model: Transformer, w_query: jax.Array, w_key: jax.Array) -> Transformer:
    """Let all heads that compare points read W_Q x in their queries and W_K x in their keys."""

    def read(read: Read, weight: jax.Array) -> Read:
        block = jnp.matmul(weight.T, read.blocks["x"], precision="highest")
        return Read({**read.blocks, "x": block}, read.width)

    def heads(group: Heads) -> Heads:
        if group.query is None or "x" not in group.query.blocks:
            return group
        return replace(group, query=read(group.query, w_query), key=read(group.key, w_key))

    prologue, steps = (
        tuple(replace(block, attention=tuple(map(heads, block.attention))) for block in blocks)
        for blocks in (model.weights.prologue, model.weights.steps)
    )
    patterns = {name: heads(group) for name, group in model.weights.patterns.items()}
    weights = replace(model.weights, prologue=prologue, steps=steps, patterns=patterns)
    return model.replace(weights=weights)


def logits(model: Transformer, task: Task) -> jax.Array:
    """The logits of the first head at the supports, then the queries, for all supports."""
    group = unrolled_blocks(model)[len(model.weights.prologue)].attention[0]
    stream = embed(model.weights.embedding, task)
    return matmul(group.query(stream)[1:], group.key(stream)[1 : task.num_supports + 1].T)


def per_head(read: Read, heads: int, slot: str) -> np.ndarray:
    """The blocks of a read of several heads [layer, head, width of the slot, channels]."""
    return np.stack(np.split(np.asarray(read.blocks[slot]), heads, axis=2), axis=1)


def matrices(block: Block) -> np.ndarray:
    """W_Q^T W_K of every layer and head [layer, head, width, width]."""
    (group,) = block.attention
    query, key = (per_head(read, group.heads, "stream") for read in (group.query, group.key))
    return query @ key.mT


def spectrum(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Asymmetry and negative eigenvalues of W_Q^T W_K [layer, head] on a centred stream."""
    scale = np.asarray(block.attention_norm["stream"].scale)[:, None, :]
    centre = np.eye(scale.shape[-1]) - 1 / scale.shape[-1]
    matrix = centre @ (scale[..., None] * matrices(block) * scale[..., None, :]) @ centre
    even = (matrix + matrix.mT) / 2
    sigma = np.linalg.eigvalsh(even)
    asymmetry = np.linalg.norm(matrix - even, axis=(2, 3)) / np.linalg.norm(matrix, axis=(2, 3))
    return asymmetry, sigma[..., 0] / np.max(np.abs(sigma), axis=-1)


def keep(model: Transformer, part: str) -> Transformer:
    """Return the model with only this part of W_Q^T W_K in every head; biases act as before."""
    (block,) = model.weights.steps
    (group,) = block.attention
    whole = matrices(block)
    even = (whole + whole.mT) / 2
    sigma, vectors = np.linalg.eigh(even)
    positive = (vectors * np.maximum(sigma, 0)[..., None, :]) @ vectors.mT
    selected = (whole, even, positive, whole - even)[PARTS.index(part)]
    # the factors of columns, which the softmax sees: the biases of queries and of the LayerNorm
    keys = per_head(group.key, group.heads, "stream").mT
    beta = np.asarray(block.attention_norm["stream"].bias)[:, None, None, :]
    column = per_head(group.query, group.heads, "one") @ keys + beta @ (whole - selected)

    def read(**parts: np.ndarray) -> Read:
        joined = (np.concatenate(np.moveaxis(each, 1, 0), axis=-1) for each in parts.values())
        blocks = dict(zip(parts, map(jnp.asarray, joined), strict=True))
        return Read(blocks, group.heads * whole.shape[-1])

    same = np.broadcast_to(np.eye(whole.shape[-1]), whole.shape)
    group = replace(group, query=read(stream=selected, one=column), key=read(stream=same))
    steps = (replace(block, attention=(group,)),)
    return model.replace(weights=replace(model.weights, steps=steps))


def trained(name: str, count: int, key: jax.Array) -> tuple[Rows, dict]:
    """Measure W_Q^T W_K of a trained encoder, and its error if only a part of each is kept."""
    run = load(name)
    model = jax.tree.map(lambda leaf: np.asarray(leaf, float), run.model)
    asymmetry, negative = spectrum(model.weights.steps[0])
    tasks = draw_tasks(key, count, run.family)
    zero = float(jnp.mean(tasks.y_query**2))
    losses = [float(loss(keep(model, part), tasks)) for part in PARTS]
    layers, heads = map(range, asymmetry.shape)
    columns = {"antisymmetric part / all": asymmetry[None]}
    columns["smallest eigenvalue / largest |eigenvalue|"] = negative[None]
    rows = tidy({"run": [name], "layer": layers, "head": heads}, **columns)
    rows += tidy({"run": [name], "kept part": PARTS}, loss=[losses])
    whole, symmetric, positive, antisymmetric = losses
    return rows, {
        f"{name}: |antisymmetric part of W_Q^T W_K| / |W_Q^T W_K|, "
        "median over heads, >= 0.5": np.median(asymmetry),
        f"{name}, only symmetric parts without negative eigenvalues: loss / loss of predicting "
        "0 <= 5 %": positive / zero,
        f"{name}, only symmetric parts: loss / loss of the whole model >= 1.05": symmetric / whole,
        f"{name}, only antisymmetric parts: loss / loss of predicting 0 >= 0.5": antisymmetric
        / zero,
    }


@jax.jit
def loss(model: Transformer, tasks: Task) -> jax.Array:
    return jnp.mean((predict_batch(model, tasks) - tasks.y_query) ** 2)


CLAIM = Claim(
    statement="Attention with queries W_Q x and keys W_K z, W_Q not equal to W_K, is a kernel "
    "smoother: it averages the values with weights proportional to the positive scores s(x, z) = "
    "exp(<W_Q x, W_K z> / temperature).",
    truth="The scores are a positive semi-definite kernel on every set of points if W_Q^T W_K is "
    "symmetric without negative eigenvalues. If it is symmetric with a negative eigenvalue, two "
    "opposite points have a negative eigenvalue. If it is not symmetric, no factors of rows and "
    "columns make the scores symmetric: the smoother exists, but kernel ridge regression does not, "
    "and conjugate gradient fails. A key bias multiplies rows and cancels in the softmax. A query "
    "bias multiplies columns and does not, but the head is the smoother of c(x) k(x, z) c(z), "
    "which is a kernel if k is one. The trained encoders of this library have W_Q^T W_K far "
    "from symmetric. With only the symmetric parts without negative eigenvalues, their loss grows, "
    "but it stays below 5 % of that of predicting 0.",
    source="Tsai et al. 2019, abstract",
    quote="To be more precise, we realize that the attention can be seen as applying kernel "
    "smoother over the inputs with the kernel scores being the similarities between inputs.",
    expected=HOLDS,
    required_inputs=TASK_FAMILY,
    run=run,
    # `runs` are trained models, and `tasks` evaluate each of them.
    config=Config(draws=50, num_features=3, num_supports=16, num_queries=8, ridge=1.0, tasks=256),
    axes=Config(runs=("gp-encoder", "gp-encoder-hard")),
    quick=Config(draws=5, runs=("gp-encoder",), tasks=16),
    plot=Plot(x="layer", y="antisymmetric part / all", by=("run",), logy=False),
)
