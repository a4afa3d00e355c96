"""Probes: what a model computes layer by layer, and which solver is nearest to it.

**Which solver does a model run?** `icl-krr identify MODEL` compares a trained model with known
solvers. MODEL is a reference run, such as `gp-encoder`, or the folder of your own run:

```sh
icl-krr identify gp-encoder
```

A linear probe extracts a prediction after every layer. Its controls are probes of an untrained
model, of shuffled outputs and of another family of tasks, and the model's own readout. The command
compares the predictions, and their hat matrices d prediction / d y, with the steps of the solvers
in the catalogue, by the rules of `identify`. The verdict is "identified", "close to", "not
distinguishable", "none is close" or "not identified" (see `Identification`).

The nested models are weaker statements, each with its distance: is the model linear in y, a
smoother of y, a function of the kernel matrix, a polynomial of this matrix, and of which degree?
The command
prints tables and writes `identify.json`, `identify.md`, `layers.csv`, the heatmaps of layers
against steps and the spectral filter of every layer. It repeats everything with a second seed. With
`--positions 4 8`, it identifies the model after 4 and 8 supports as well, and writes
`positions.md`. With `--shift NAME`, it scores the model outside of its training distribution
(`icl_krr.tasks.shifted`). `icl-krr solverbench` measures how often the result is right, on models
whose solver is known.

**What does the stream hold?** A probe that is fitted to y hides a solver that a network runs in
channels of its own. The command therefore reads a trained model a second time, with
`identify_streams`: linear maps decode step t from the stream of layer l, and its change from what
block l wrote, beside controls, and the answer must follow the decoded states. So a verdict names
three depths: decodable, arrives in order, used. The command writes `streams.md` and, in
`streams-heatmaps.png`, the staircases of steps against layers.

**Do errors alone name a solver?** Published work reads each layer by a linear probe, and names the
solver with the nearest errors, step by step. `icl-krr identify MODEL --protocol error-profile` does
this, with every candidate tuned in the same way, predictors that run no solver, and an untrained
model beside it. Read from a model's own predictions the name is right, and through a probe often
not (claims C48 and C49; `benchmarks/results/what-networks-run.md`).

**Your own model.** `identify` takes any JAX function of a task that returns its predictions before
the first layer and after every layer, [layers + 1, queries], such as the loop below.
`identify_arrays` takes arrays of predictions or of hidden states, and their derivatives, from a
network of any library. `torch_arrays` computes them for PyTorch, also with hooks, and
`decoder_layer_predictions` for a decoder of Hugging Face. `array_layer_predictions` wraps a
function of NumPy arrays, with derivatives by differences:

>>> import jax, jax.numpy as jnp
>>> import icl_krr as ik
>>> def predictions(task):
...     w, layers = jnp.zeros(task.num_features), []
...     for _ in range(4):
...         layers.append(task.x_query @ w)
...         w += 0.05 * task.x.T @ (task.y - task.x @ w)
...     return jnp.stack(layers)
>>> config = ik.tasks.LinearRegression(num_features=4, num_supports=16, num_queries=4)
>>> keys = jax.random.split(jax.random.key(0), (2, 8))
>>> fitted, scored = (jax.vmap(ik.tasks.sample, in_axes=(0, None))(half, config) for half in keys)
>>> names = {"candidates": ("gradient_descent", "conjugate_gradient"), "kernels": ("linear",)}
>>> result = ik.probes.identify(predictions, fitted, scored, **names)
>>> fit = result.best.fit
>>> result.status, fit.candidate, round(float(fit.values["step_size"]), 4)
('identified', 'gradient_descent', 0.05)

`print(result)` shows the same table as the command, with the verdict below it.

**What does a layer do to one eigenvalue?** `along_eigenvector` sets y to an eigenvector of K, and
`read_filter` then reads the filter of every layer at this eigenvalue, without a derivative.

**Has a construction converged?** `icl_krr.check(model, task)` measures the error against exact
kernel ridge regression, and its `Status` says in a sentence what helps if it is large.

**Which slot needs which precision?** `round_slots(model, {"r": "float16"})` returns hooks that
round slots after each write, for `icl_krr.run_with_hooks` and `icl_krr.run_with_cache`.
`icl-krr sweep rounding` does so for the parts of two causal solvers.

**What does each part contribute?** `icl-krr ablate MODEL` removes one head or slot at a time and
measures the change of the predictions. MODEL is a solver of the catalogue or a trained run. For a
solver, the table also shows the expected change.

```sh
icl-krr ablate conjugate-gradient
```

With `--replace mean`, a part is replaced by its mean instead of zero. In Python, these functions
select parts of a model by name, in one compiled program and in bounded memory:

- `sites` lists heads, MLP units, slots and token roles. `ablate` removes one of them at a time.
  `patch` replaces its value by the value from other tasks.
- `transplant` sets slots before a block to the values of a solver, another model or a cache.
  `icl_krr.resume` continues the forward pass from any residual stream.
- `weight_difference` compares weights slot by slot.
- `sensitivities` differentiates predictions with respect to inputs, outputs and weights;
  `influence` gives the effect of each support.
- `icl_krr.run_with_hooks(model, task, {"blocks.*.resid_post.alpha": f})` adds a hook to all blocks.
  `icl_krr.run_with_cache(model, task, points=("resid_post.alpha",))[1].stack("resid_post.alpha")`
  returns the activations at one hook point of all blocks.
"""

import lazy_loader

from ._check import check as check  # a name that is also a file's must not wait

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
