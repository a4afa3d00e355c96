"""Training of any model, on tasks that are drawn inside the compiled training step.

**Train a model.** The first argument is a recipe: a reference run, a run's folder or a JSON file.
Every field of the recipe is a flag (`icl-krr train --help`).

```sh
icl-krr train gp-encoder --training.steps 1000
```

Weights start at random, or from a run or a construction (`--model.start`). A run's recipe.json is
sealed by a checksum, as its weights are, and has the checksum of the weights in another folder that
it started from: a file that was downloaded names no folder to read. Tasks are those of
`icl_krr.tasks`. Optionally, the number of supports is random, and a curriculum increases the
numbers of features and supports.

The encoder has one token for each support, and supports attend to each other. The decoder has the
architecture of GPT-2, with interleaved tokens x and y, a causal mask and learned position
embeddings. A token of the decoder attends to earlier tokens but not to itself, so that supports and
queries are treated alike.

`--training.target exact` compares predictions with the posterior mean instead of the outputs. Given
the supports, the outputs are the posterior mean plus noise of mean 0. The gradient therefore has
the same mean and less variance.

`--training.objective gaussian` trains a mean and a variance: the model gets a head for the
logarithm of the variance, and the loss is minus the log density of an output with its noise, also
at the queries (`icl_krr.predictive`). The metrics then also have this loss ("nll") on validation
tasks, for the model, for exact regression with its variance and for one Gaussian for all outputs.

The metrics are the training loss, the error on validation tasks, and the errors of four reference
predictors on the same validation tasks. "ratio" is the error of the model divided by the error of
the exact predictor. The other three predictors are Nadaraya-Watson, the mean of the supports'
outputs, and a predictor that always returns 0. The exact predictor is the posterior mean for
Gaussian processes and linear tasks with fixed hyperparameters. For all other families it is the
kernel ridge regression with the lowest loss on other tasks, and a model can have a lower loss than
this predictor.

The same command continues an interrupted run from its last checkpoint, `--training.log-every` steps
apart, on any number of devices and processes. On the same machine and number of devices, the final
weights are equal bit for bit to those of a run without interruption. If the loss becomes NaN or
infinite, training stops, reports the step and keeps the last checkpoint.

**Several devices and machines.** `--mesh tasks=8` divides the tasks of every step over eight
devices. `--hosts auto` runs the command in several processes that share all their devices; a job of
SLURM, Kubernetes, Open MPI or Cloud TPU starts one per machine or GPU. Elsewhere, start each
process yourself, with the address of process 0, the number of processes and its own id:

```sh
icl-krr train gp-decoder-gpu --hosts 10.0.0.1:1234,2,0
```

The commands `train`, `sweep`, `identify`, `fit` and `ablate` take both options. Results are those
of one device, to rounding. Process 0 alone prints and writes files; all read the checkpoint, so
that they need a common folder `--out`, and all need the same settings. If a process is lost
(killed, or not heard of for 30 seconds), JAX ends the others within a minute.

A job of SLURM, `icl_krr/training/clusters/slurm.sbatch`:

```bash
.. include:: clusters/slurm.sbatch
```

A JobSet of Kubernetes, `icl_krr/training/clusters/jobset.yaml`:

```yaml
.. include:: clusters/jobset.yaml
```

In Python, call `jax.distributed.initialize` before anything else, and give `train` a mesh, or set
it by `jax.set_mesh`.

JAX starts threads, so a process that is forked after the first use of JAX may hang. Start other
processes, such as several runs from one script, with `multiprocessing.get_context("spawn")`.

In Python:

>>> import jax
>>> import icl_krr as ik
>>> family = ik.tasks.LinearRegression(num_features=2, num_supports=8)
>>> size = ik.Architecture(num_features=2, width=8, depth=1, heads=1)
>>> settings = ik.training.Training(steps=4, batch=2, log_every=2, validation=4)
>>> model, rows = ik.training.train(ik.init(jax.random.key(0), size), family, settings)
>>> [row["step"] for row in rows]
[0, 2, 4]

**Fit a construction.** `icl-krr fit` fits the hyperparameters of a construction with gradients
through its forward pass, so that it predicts the same as a trained model:

```sh
icl-krr fit gp-encoder --lengthscale 1 --ridge 0.5 --steps 12 --method lbfgs
```

`icl-krr fit TABLE.csv --target COLUMN` fits a construction to a table. By default it minimises the
squared error of predicting each quarter of the supports from the other three quarters.
`--objective marginal-likelihood` maximises the marginal likelihood instead. `--fit-spectrum` also
fits the bounds on the eigenvalues, which determine step sizes and momenta. In Python, `adapt` fits
any pytree of parameters: hyperparameters, a projection, a sketch, the scalars of every step, or all
weights.

In float32, a loss of conjugate gradient with many steps is rough until the steps converge, because
each step multiplies the rounding errors of the steps before. Gradients and sweeps are as rough as
the loss. Use enough steps (`icl_krr.check` says whether they are enough), a larger ridge, Chebyshev
iteration or float64.
"""

import lazy_loader

# the settings are read without JAX
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
