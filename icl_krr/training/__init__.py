"""Training: any model of the one forward, on tasks that are drawn inside the compiled step.

**Train a model.** The first argument is a recipe: a reference run, a run's folder or a JSON file.
Every field of the recipe is a flag (`icl-krr train --help`).

```sh
icl-krr train gp-encoder --training.steps 1000
```

Weights start at random, or from a run or a construction (`--model.start`). Tasks are Gaussian
processes (linear, exponential or Gaussian kernel; hyperparameters fixed or drawn), linear
regression (any condition number, dense or sparse), ReLU networks, decision trees, sinusoids, or
rows of a table. Contexts of mixed length and curricula over features and context are settings.

The encoder has one token for each support, and supports attend to each other. The decoder is that
of GPT-2: x and y interleaved, causal, with learned positions. A token of the decoder attends to
earlier tokens but not to itself, so that supports and queries are treated alike.

`--training.target exact` compares predictions with the posterior mean in place of the outputs.
Given the supports, outputs are the posterior mean plus noise of mean 0; the gradient has the same
mean and less variance.

The metrics are the loss, its ratio to the loss of the exact predictor on the same tasks, and the
losses of Nadaraya-Watson, mean and zero. The exact predictor is the posterior mean for Gaussian
processes and linear tasks with fixed hyperparameters. For all other families it is the kernel
ridge regression with the lowest loss on other tasks, and a model can beat it.

The same command continues a run that was interrupted, and reaches the same weights bit for bit on
the same machine. If the loss becomes NaN or infinite, training stops, reports the step and keeps
the last checkpoint. In Python:

>>> import jax
>>> import icl_krr as ik
>>> family = ik.tasks.LinearRegression(num_features=2, num_supports=8, num_queries=4)
>>> size = ik.Architecture(num_features=2, attention="linear", depth=1, width=8, heads=1)
>>> model = ik.init(jax.random.key(0), size)
>>> settings = ik.training.Training(steps=4, batch=8, validation=8)
>>> ik.training.train(model, family, settings).step
4

**Fit a construction.** `icl-krr fit` differentiates a construction through the forward, and moves
its hyperparameters to where it predicts what a trained model predicts:

```sh
icl-krr fit gp-encoder --lengthscale 1 --ridge 0.5 --steps 12 --method lbfgs
```

`icl-krr fit TABLE.csv --target COLUMN` fits the supports of a table; each quarter is predicted
from the others. `--objective marginal-likelihood` maximises the marginal likelihood.
`--fit-spectrum` also fits the bounds on the eigenvalues, which set step sizes and momenta. In
Python, `adapt` fits any pytree of parameters: hyperparameters, a projection, a sketch, the scalars
of every step, or all weights.
"""

import lazy_loader

# the settings are read without JAX
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
