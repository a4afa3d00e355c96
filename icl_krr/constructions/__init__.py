r"""Solvers of kernel ridge regression as explicit weights of a transformer.

**The compiler.** `icl_krr.compile` takes a solver, a function of plain operators (`icl_krr.solver`
explains them), and returns a transformer. Solvers of this library have their own calls here. The
passes, in `solvers/language` and `constructions/compiler`:

1. *Trace* (`trace.py`): the function runs on values that record what is done to them. Each is
   assigned once, equal ones are one, and states that start at a number get their shapes.
2. *Roles* (`analysis.py`): the prediction is needed at the queries, what the kernel multiplies at
   the supports, and every other value where a needed one reads it.
3. *Instructions* (`instructions.py`): products, quotients, inner products and the kernel read
   slots. So a sum that one of them reads is stored in a slot, and a sum that none reads is not.
4. *Order* (`order.py`): nothing reads the old value of a state after its slot was overwritten. Old
   values are copied where no order achieves that.
5. *Emission* (`emit.py`): the `Machine` of the kernel and the attention records heads and MLP
   units. They write to no token where the value is not needed, and scratch slots are erased.
6. *Packing* (`assembly/packing.py`): each head and unit goes into the earliest block at which all
   that it reads has been written.

The compiler refuses, with the line of the function, a Python `if` or a comparison of values, an
operation on values of the wrong shapes, such as a vector plus a scalar, other functions of values,
and a step that forgets a state. The prediction reads nothing that is known at supports alone, such
as the diagonal of K. States are slots, so no state is called x, y, one, aggregator, support or
query. The functions of `prefix_` solvers are compiled for a machine whose tokens have the sums of
their prefixes. Delta rules and averages, where a token does what others do not, call a `Machine`
directly, with slots at certain tokens, such as `SUPPORTS` or `SUPPORTS_AND_QUERIES`.

**What you can choose.**

- *Kernel.* It determines the `attention` (see `Options`). In softmax attention, the aggregator
  token is a sink, whose weight gives the normaliser, so the model multiplies by K without
  normalisation. A `Mixture` has one head per component.
- *Width.* `sketch=P` [p, m] stores P^T x in m channels. P is part of the weights and has gradients.
  If `sketch` is a feature map, the first MLP computes the features, and linear attention uses their
  kernel, in time linear in the context length.
- *Origin of x.* Inner products lose digits of differences of points that are far from 0, so models
  with the Gaussian kernel subtract the mean of the supports, if they store x itself.
- *Units of y.* With exact arithmetic, y times c > 0 multiplies the prediction by c, for c from
  1e-30 to 1e30 in float32 (see `icl_krr.run_with_cache`). All outputs and supports have one unit,
  so in conjugate gradient an output, or a prefix, that is 1e9 times smaller than the largest y
  loses digits. Weights of an average and bounds of ReLU tables are in units of y itself.
- *Causality.* In delta rules, `prefix_` solvers and `bayesian_average`, each token predicts from
  the supports before it (`icl_krr.predict_along`). All but the last take `CausalOptions`.
- *Arithmetic.* With `ReLU(width, bound)` and softmax attention, a model has only standard
  components. The state `cache["overrun"]` shows where values exceed the bounds.
- *Numbers.* JAX can trace ridge, temperature, projection and all others that set no shape. Models
  that a function under `jax.vmap` builds share one program, and numbers have gradients.
- *Depth.* A `lax.scan` runs over the steps, so the compile time does not grow with them.
  `model.replace(steps=...)`, `model.rebuild(ridge=...)`, `icl_krr.untie` and `icl_krr.dense` make
  other models of one.

**Layers of language models.** With the linear kernel, the causal rules are recurrent layers:
$k_i = x_i$ is the key, $y_i$ the value $v_i$, `strength` the write strength $\beta_i$ and
`log_gate` the log gate $g_i$. Layers read after the write, `prefix="inclusive"`, with $q_i = k_i$
at a support and any $q$ at a query of the task, and scale queries by $1 / \sqrt{d}$, which the
prediction is not. `icl_krr.export.from_linear_attention` compares a layer of your own with a rule.

- *DeltaNet, Gated DeltaNet, KDA* are `delta_rule` with step size 1; their code stores $S^T$, and
  KDA has a matrix `log_gate`, a gate for each key channel. *DeltaProduct*, whose tokens write
  several times, has as many supports, of which only the first has a gate. *Gated DeltaNet-2* has
  $y_i = w_i v_i$ and `erase` for $b_i k_i$, with its write and erase gates of each channel.
- *Longhorn* is `implicit_delta_rule` with step size 1. The published layer replaces $k_i k_i^T$,
  where it forgets, by its diagonal, to run as a parallel scan.
- *Momentum DeltaNet* is `momentum_delta_rule` with momentum exp(log_mu), decay exp(log_alpha),
  strength eta and step size beta; its erased vector p is k, and its M has the opposite sign.
  *Linear Titans* (without LayerNorm) have momentum eta, decay 1 - alpha, strength theta and step
  size 1.
- *Preconditioned DeltaNet and KDA* are `preconditioned_delta_rule` with `squash`.
- *Kalman Delta Networks* are `kalman_delta_rule` with $e^{g_i}$ for alpha, $\omega_i$ for omega,
  ridge 1 and strength 1 / r, and info_scale the number of channels; initial_precision is 1.
- *Mesa layers* are `prefix_conjugate_gradient` with $H_i = C_i$, $Z_i = b_i$ and
  $\Lambda = \lambda I$, or a vector `ridge` for a diagonal $\Lambda$; `icl_krr.check` then needs
  the kernel with the projection $\Lambda^{-1/2} U$ for keys $U x$, and the ridge 1. A layer solves
  $(H_i + \Lambda) h = q_i$ for $Z_i^T h$: the same prediction after m steps, but other iterates.
  With a `window`, the objective is that of the Omega rule of *Atlas*, whose layer takes one
  gradient step.
- *Gated KalmaNet* is `prefix_chebyshev` with strength $\beta_i^2$ and its n iterations as n + 1
  steps. Its ridge is in proportion to the Frobenius norm of $C_i$, so that a fixed ratio $b / a$ is
  valid for every prefix. It mixes its solution with the query, which the construction does not.
- Not here: *Muon* (an orthogonal momentum takes two more blocks an iteration), memories that are
  MLPs, and *log-linear attention*, whose mask cuts a prefix into blocks of 1, 2, 4, ... supports.

Sources: Schlag et al., Linear transformers are secretly fast weight programmers, 2021; Yang et al.,
Gated delta networks, 2024; Liu et al., Longhorn, 2024; Behrouz et al., Titans and ATLAS, 2025;
Tumma, Loo, Rus, Preconditioned DeltaNet, 2026; Kalman Delta Networks, 2026; von Oswald et al.,
Uncovering mesa-optimization algorithms in transformers, 2023, and MesaNet, 2025; Peng et al., Gated
KalmaNet, 2025.

**Shared arguments.** The solver of the same name in `icl_krr.solvers` has the mathematics, the
kernels that it takes, and most arguments. `num_features` is the number p of channels of a point x.

Args:
    step_size: step size $\eta$ > 0.
    form: order of the operations, "textbook" or "fused" (see `conjugate_gradient`).
    stores_sums: whether a slot `C` of m^2 channels stores $C_i$, as the state of a recurrent layer
        does, so that it can be read, rounded or patched. A step then needs no head, but one more
        block. Default False: a head computes each product $C_i d_i$.
    edges: E increasing numbers, for a slot `bins` with the probabilities that an output is below
        the first edge, between neighbouring edges, and above the last edge, differences of
        $\sum_g w_{gi} \Phi((c - f_{gi}) / \sqrt{s_{gi}})$ at the edges c. Default None.
"""

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name):
    if name in __all__:
        return _load(name)
    from ..catalogue import SOLVERS, absent  # whose packages may import this room
    from ._compiled import lookup

    if name in SOLVERS and SOLVERS[name].solver is not None:  # of another package
        return lookup(name)
    raise absent(__name__, name)
