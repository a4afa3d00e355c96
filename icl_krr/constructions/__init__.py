r"""Solvers of kernel ridge regression as explicit weights of a transformer.

Each solver has one file, which describes a step by operations of a `Machine`, such as
`kernel_times`, `add` and `dot`. The machine translates them to weights: the type of attention
determines the heads of an operation, the arithmetic its MLP units, and operations that do not
depend on each other share a block. A slot has values only at certain tokens, such as `SUPPORTS` or
`SUPPORTS_AND_QUERIES`; where an operation would write to others, the machine masks it or raises an
error.

**What you can choose.**

- *Kernel.* The kernel determines the `attention` (see `Options`). In softmax attention, the
  aggregator token is an attention sink, whose weight gives the softmax normaliser, so the model can
  multiply by K without normalisation. A `Mixture` has one head per component.
- *Width.* `sketch=P` [p, m] stores P^T x in m channels instead of x. P is part of the weights, so
  you can differentiate with respect to P. If `sketch` is a feature map, the first MLP computes the
  features, and linear attention uses their kernel, in time linear in the context length.
- *Origin of x.* The Gaussian kernel depends on differences of points only, but a head computes it
  from inner products, which lose digits if all points are far from 0. So the embedding of these
  models subtracts the mean of the supports (`model.spec.centred`), a part of the preparation of the
  task. Models with other kernels, feature maps or landmarks read x as it is.
- *Units of y.* With exact arithmetic, y times c > 0 multiplies the prediction by c, for c from
  1e-30 to 1e30 in float32, because the model runs on y in other units (see
  `icl_krr.run_with_cache`). All outputs and supports have one unit, so in conjugate gradient an
  output, or a prefix of the supports, that is 1e9 times smaller than the largest y loses digits.
  The weights of an average and the bounds of ReLU tables are in units of y itself.
- *Causality.* The delta rules, `prefix_conjugate_gradient`, `prefix_chebyshev`, `prefix_posterior`
  and `bayesian_average` are causal: each token predicts from the supports before it, at all
  positions (`icl_krr.predict_along`). All but the last also take the keywords in `CausalOptions`.
- *Uncertainty.* `prefix_posterior` computes mean and variance of a Gaussian process at every token,
  and `bayesian_average` averages over several. `icl_krr.predictive` returns the distribution of a
  new output; `icl_krr.uncertainty` scores it.
- *Arithmetic.* With `ReLU(width, bound)` and softmax attention, a model has only standard
  components. The state `cache["overrun"]` shows where values exceed the bounds.

**Layers of language models.** With the linear kernel, the causal rules are recurrent layers:
$k_i = x_i$ is the key, $y_i$ the value $v_i$, `strength` the write strength $\beta_i$ and
`log_gate` the log gate $g_i$. Layers read after the write, `prefix="inclusive"`, with $q_i = k_i$
at a support and any $q$ at a query of the task, and scale queries by $1 / \sqrt{d}$, which the
prediction is not. `icl_krr.export.from_linear_attention` compares a layer of your own with a rule,
token by token.

- *DeltaNet, Gated DeltaNet, KDA* are `delta_rule` with step size 1; their code stores $S^T$, and
  KDA has a matrix `log_gate`, a gate for each key channel. A token that writes several times
  (*DeltaProduct*) is as many supports, of which only the first has a gate. *Gated DeltaNet-2* has
  $y_i = w_i v_i$ and `erase` for $b_i k_i$, with its write and erase gates of each channel.
- *Longhorn* is `implicit_delta_rule` with step size 1. The published layer replaces $k_i k_i^T$,
  where it forgets, by its diagonal, to run as a parallel scan.
- *Momentum DeltaNet* is `momentum_delta_rule` with momentum exp(log_mu), decay exp(log_alpha),
  strength eta and step size beta; its erased vector p is k, and its M has the opposite sign.
  *Linear Titans* (a memory without LayerNorm) have momentum eta, decay 1 - alpha, strength theta
  and step size 1.
- *Preconditioned DeltaNet and KDA* are `preconditioned_delta_rule` with `squash`.
- *Kalman Delta Networks* are `kalman_delta_rule` with $e^{g_i}$ for alpha, $\omega_i$ for omega,
  ridge 1 and strength 1 / r, and info_scale the number of channels; initial_precision is 1.
- *Mesa layers* are `prefix_conjugate_gradient` with $H_i = C_i$, $Z_i = b_i$ and
  $\Lambda = \lambda I$, or a vector `ridge` for a diagonal $\Lambda$; `icl_krr.check` then needs
  the kernel with the projection $\Lambda^{-1/2} U$ for keys $U x$, and the ridge 1. A layer solves
  $(H_i + \Lambda) h = q_i$ for $Z_i^T h$: the same prediction after m steps, but other iterates,
  without a preconditioner; where it decodes, it starts at $q_i$ over the diagonal. With a `window`,
  the objective is that of the Omega rule of *Atlas*, whose layer takes one gradient step.
- *Gated KalmaNet* is `prefix_chebyshev` with strength $\beta_i^2$ and its n iterations as n + 1
  steps. Its ridge is in proportion to the Frobenius norm of $C_i$, so that a fixed ratio $b / a$ is
  valid for every prefix. It solves for the query, with the same predictions after every step, and
  mixes its solution with the query, which the construction does not.
- Not here: *Muon* orthogonalises the momentum, in $r m^2$ gated units and two more blocks for each
  iteration. A memory that is itself an MLP is not linear in what it learned, so every token would
  have to store its weights and repeat all steps before it. *Log-linear attention* needs a mask that
  cuts the prefix of a token into blocks of 1, 2, 4, ... supports.

Sources: Schlag et al., Linear transformers are secretly fast weight programmers, 2021; Yang et al.,
Gated delta networks, 2024; Liu et al., Longhorn, 2024; Behrouz et al., Titans, 2025, and ATLAS,
2025; Tumma, Loo, Rus, Preconditioned DeltaNet, 2026; Kalman Delta Networks: uncertainty-aware
associative memory, 2026; von Oswald et al., Uncovering mesa-optimization algorithms in
transformers, 2023, and MesaNet: sequence modeling by locally optimal test-time training, 2025; Peng
et al., Gated KalmaNet, 2025.

**Many values in one compilation.** JAX can trace ridge, temperature, lengthscale, projection, step
sizes and the other numbers that are no sizes. Build the model inside the function that you pass to
`jax.vmap`. The 200 models of this example share one compiled program, and you can differentiate
with respect to these values:

>>> import jax, jax.numpy as jnp
>>> import numpy as np
>>> import icl_krr as ik
>>> task = ik.tasks.sample(jax.random.key(0), ik.tasks.GaussianProcess(ik.Gaussian()))
>>> def error(ridge, temperature):
...     kernel = ik.Exponential(temperature)
...     sink = Softmax(log_sink=ik.theory.log_sink(kernel, task))
...     sizes = {"num_features": 2, "steps": 16}
...     model = conjugate_gradient(kernel, ridge=ridge, attention=sink, **sizes)
...     return jnp.mean((ik.predict(model, task) - task.y_query) ** 2)
>>> ridges, temperatures = np.logspace(-2, 1, 20), np.linspace(0.3, 3, 10)
>>> by_ridge = jax.vmap(error, in_axes=(0, None))
>>> jax.jit(jax.vmap(by_ridge, in_axes=(None, 0)))(ridges, temperatures).shape
(10, 20)

**Depth and weights.** A `lax.scan` runs over the steps, so the compile time does not grow with the
depth. Weights that are equal in all steps are stored once. `model.replace(steps=...)`,
`model.rebuild(ridge=...)`, `icl_krr.untie` and `icl_krr.dense` make other models of one.

**Shared arguments.** The oracle of the same name in `icl_krr.solvers` has the mathematics, says
which kernels it takes, and explains the arguments that both have. `num_features` is the number p of
channels of a point x, and `options` are explained in `Options` and `CausalOptions`.

Args:
    step_size: step size $\eta$ > 0.
    form: order of the operations, "textbook" or "fused" (see `conjugate_gradient`).
    stores_sums: whether a slot `C` of m^2 channels stores $C_i$, as the state of a recurrent layer
        does, so that it can be read, rounded or patched. A step then needs no head, but one more
        block. Default False: a head computes each product $C_i d_i$.
"""

from typing import TYPE_CHECKING

from .. import solvers
from .assembly.choice import machine
from .assembly.machine import Machine
from .assembly.options import Options, Softmax
from .assembly.prefix import CausalOptions, prefix_sums
from .assembly.relu import ReLU
from .assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES
from .bayesian_average import bayesian_average
from .compiler import compile, construction_of
from .delta_rules import (
    delta_rule,
    implicit_delta_rule,
    kalman_delta_rule,
    momentum_delta_rule,
    preconditioned_delta_rule,
)
from .prefix_conjugate_gradient import prefix_chebyshev, prefix_conjugate_gradient, prefix_posterior

nadaraya_watson = construction_of(solvers.nadaraya_watson)
gradient_descent = construction_of(solvers.gradient_descent)
gradient_descent_in_alpha = construction_of(solvers.gradient_descent_in_alpha)
gradient_descent_plus_plus = construction_of(solvers.gradient_descent_plus_plus)
heavy_ball = construction_of(solvers.heavy_ball)
chebyshev = construction_of(solvers.chebyshev)
richardson = construction_of(solvers.richardson)
preconditioned_chebyshev = construction_of(solvers.preconditioned_chebyshev)
conjugate_gradient = construction_of(solvers.conjugate_gradient)
preconditioned_conjugate_gradient = construction_of(solvers.preconditioned_conjugate_gradient)
newton_schulz = construction_of(solvers.newton_schulz)

__all__ = [
    "SUPPORTS",
    "SUPPORTS_AND_QUERIES",
    "CausalOptions",
    "Machine",
    "Options",
    "ReLU",
    "Softmax",
    "bayesian_average",
    "chebyshev",
    "compile",
    "conjugate_gradient",
    "delta_rule",
    "gradient_descent",
    "gradient_descent_in_alpha",
    "gradient_descent_plus_plus",
    "heavy_ball",
    "implicit_delta_rule",
    "kalman_delta_rule",
    "machine",
    "momentum_delta_rule",
    "nadaraya_watson",
    "newton_schulz",
    "preconditioned_chebyshev",
    "preconditioned_conjugate_gradient",
    "preconditioned_delta_rule",
    "prefix_chebyshev",
    "prefix_conjugate_gradient",
    "prefix_posterior",
    "prefix_sums",
    "richardson",
]

if not TYPE_CHECKING:  # a type checker knows which names there are

    def __getattr__(name):
        from ..catalogue import absent  # which imports packages that import this one

        raise absent(__name__, name)
