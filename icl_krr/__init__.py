r"""A differentiable simulator of in-context kernel ridge regression in transformers.

The library writes solvers of kernel ridge regression as explicit weights of a transformer. These
models and trained models use the same forward pass.

- `icl_krr.kernels`: kernels.
- `icl_krr.sketches`: sketches and feature maps that reduce the width of a model.
- `icl_krr.tasks`: tasks with supports and queries, drawn at random or read from a table.
- `icl_krr.solvers`: solvers, functions that run on arrays (`icl_krr.run`), with every iterate.
- `icl_krr.constructions`: the same solvers, under the same names, as weights (`icl_krr.compile`).
- `icl_krr.losses`: losses of which delta rules learn the derivative.
- `icl_krr.transformer`, `icl_krr.residual`: the forward pass, its weights, and the residual stream
  of named slots.
- `icl_krr.uncertainty`: predictive distributions of an output.
- `icl_krr.training`: training of any model from random or constructed weights, and fits of the
  parameters that determine the weights of a construction.
- `icl_krr.probes`: what a model computes in each layer, and which solver explains it.
- `icl_krr.theory`: bounds and identities of the theory, one per function.
- `icl_krr.export`: models as files and in standard architectures.
- `icl_krr.Status`: whether a result is right, and what helps if it is not; `icl_krr.audit` says it
  of plain numbers and gradients.
- `icl_krr.StatusWarning`: the warning about a result that is not right, and how to turn it off.
- `icl_krr.InContextRegressor`: a construction as an estimator of scikit-learn.
- `icl_krr.catalogue`: names of solvers and kernels, and how to add more.

**Looking at objects.** Every object prints on one screen: arrays as `f32[32,4]`, long parts folded,
which you then print alone. In a notebook, `import treescope; treescope.basic_interactive_setup()`
shows every object as a tree that opens at a click.

**Notation.** A task has n supports $(x_i, y_i)$ with p features, q queries $x$ and r outputs. $K$
is the kernel matrix of the supports and $k(x)$ is the vector of all $k(x_i, x)$. With the `ridge`
$\lambda$,

$$A = K + \lambda I, \quad \alpha^\ast = A^{-1} y, \quad f^\ast(x) = k(x)^T \alpha^\ast.$$

The eigenvalues of $K$ are $\sigma_1 \geq \sigma_2 \geq ...$, and `spectrum` $(a, b)$ bounds the
eigenvalues of $A$. Other symbols are $\eta$ for `step_size`, $\mu$ for `momentum`, $\tau$ for
`temperature`, $\ell$ for `lengthscale`, m for a `width`, t for the number of a step and $u$ for the
unit roundoff.

**Arguments.** Everywhere, `kernel` is one of `icl_krr.kernels`, `task` an `icl_krr.Task`, `model`
an `icl_krr.Transformer`, `key` a key of `jax.random`, `steps` the number of iterations, and
`num_...` a number of features, supports, queries or outputs. Docstrings list the arguments that
need more.
"""

from importlib.util import find_spec

import lazy_loader

from ._core.xla_start import start_enough_threads, warn_of_wrong_version

warn_of_wrong_version()
start_enough_threads()
# This file does not import JAX, so that `icl-krr --help` starts quickly.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
if find_spec("sklearn") is None:  # `from icl_krr import *` works without this extra
    __all__.remove("InContextRegressor")  # pyright: ignore[reportUnsupportedDunderAll]
