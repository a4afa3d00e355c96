r"""A differentiable simulator of in-context kernel ridge regression in transformers.

Solvers of kernel ridge regression are written down as literal weights of a transformer, and run
through the one forward that trained models run through:

- `icl_krr.kernels`, `icl_krr.sketches`: what is regressed with, in full and in less width;
- `icl_krr.tasks`: supports to learn from and queries to predict, drawn or read from a table;
- `icl_krr.solvers`: the oracles, every iterate of every solver, with no transformer;
- `icl_krr.constructions`: the same solvers, under the same names, as weights;
- `icl_krr.transformer`, `icl_krr.residual`: the forward, its weights, the stream of named slots;
- `icl_krr.training`: trains any model, random or constructed, and fits what weights are made of;
- `icl_krr.probes`: what a model computes layer by layer, and which solver that is;
- `icl_krr.theory`: one bound or identity a function;
- `icl_krr.export`: models as files, and as stock architectures;
- `icl_krr.catalogue`: what can be asked for by name, and how to add to it.

Throughout, a task has n supports $(x_i, y_i)$ of p features, q queries $x$ and r outputs; $K$ is
the kernel matrix of the supports, $k(x)$ the vector of $k(x_i, x)$, and with $\lambda$ the `ridge`

$$A = K + \lambda I, \quad \alpha^\ast = A^{-1} y, \quad f^\ast(x) = k(x)^T \alpha^\ast.$$

$\sigma_1 \geq \sigma_2 \geq ...$ are the eigenvalues of $K$, $(a, b)$ bounds on those of $A$
(`spectrum`), $\eta$ is `step_size`, $\mu$ `momentum`, $\tau$ `temperature`, $\ell$ `lengthscale`;
m is a `width`, t counts steps, $u$ is the unit roundoff.
"""

import lazy_loader

# The command line answers `--help` without importing JAX, so nothing here does either.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
