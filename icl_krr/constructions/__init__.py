"""Solvers of kernel ridge regression as literal weights of a transformer.

A file per solver describes its step in operations of a `machine`: `kernel_times`, `add`, `dot`
and others. The attention decides how an operation becomes heads, the arithmetic decides how it
becomes MLP units, and the packing puts operations into as few blocks as their dependences allow
(`icl_krr.constructions.assembly`). A slot lives at the tokens `SUPPORTS` or
`SUPPORTS_AND_QUERIES`; the machine masks or refuses an operation that would write elsewhere. All
constructions take the keywords in `Options`.

**What you can choose.**

- *Kernel.* Linear attention runs `Linear` and `Features`. Softmax attention runs the exponential
  and the Gaussian kernel, any other `LogBilinear` kernel, and `Mixture` with one head per part.
  The aggregator token is a sink: its weight recovers the normaliser, so a head applies K itself.
  Softmax heads also emulate the linear kernel up to an error (`Softmax(epsilon=...)`).
- *Width.* `sketch=P` [p, m] stores P^T x in m channels in place of x; P is part of the weights, so
  gradients reach it (`icl_krr.sketches` has the best P, random ones, coordinates and landmarks). A
  feature map fills m channels in the first MLP, and linear attention then runs on its kernel, in
  time linear in the context. `icl_krr.sketched(kernel, sketch)` is the kernel of the resulting
  model.
- *Sink.* `attention=Softmax(log_sink=icl_krr.theory.log_sink(kernel, task))` shifts all logits by
  one number, so that no exponential under- or overflows. The default shift is 0.
- *Arithmetic.* The default "exact" uses gated units. `ReLU(width, bound)` uses tables of a plain
  ReLU MLP for products and reciprocals; with softmax attention the model then has only standard
  parts. `icl_krr.operand_bounds` computes the bounds from a task, and `cache["overrun"]` reports
  where data exceed them.

**Many values in one compilation.** Ridge, temperature, lengthscale, projection and step sizes are
traced. Build the model inside the mapped function; 200 models then share one program, and
gradients with respect to these values exist:

>>> import jax, jax.numpy as jnp
>>> import icl_krr as ik
>>> task = ik.tasks.sample(jax.random.key(0), ik.tasks.GaussianProcess(ik.Gaussian()))
>>> def error(ridge, temperature):
...     kernel = ik.Exponential(temperature)
...     sink = Softmax(log_sink=ik.theory.log_sink(kernel, task))
...     sizes = {"num_features": 2, "steps": 16}
...     model = conjugate_gradient(kernel, ridge=ridge, attention=sink, **sizes)
...     return jnp.mean((ik.predict(model, task) - task.y_query) ** 2)
>>> ridges, temperatures = jnp.logspace(-2, 1, 20), jnp.linspace(0.3, 3, 10)
>>> by_ridge = jax.vmap(error, in_axes=(0, None))
>>> jax.jit(jax.vmap(by_ridge, in_axes=(None, 0)))(ridges, temperatures).shape
(10, 20)

**Depth and weights.** Depth is a `lax.scan`, so compile time does not grow with it. Weights that
are equal in all steps are stored once, and `model.replace(steps=...)` is the same algorithm at
another depth. `icl_krr.untie(model)` gives every step its own weights for fine-tuning.
`icl_krr.dense(model)` merges the slots into ordinary [d_model, ...] matrices.
"""

from .assembly.choice import machine
from .assembly.options import Options, Softmax
from .assembly.relu import ReLU
from .assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES
from .conjugate_gradient import conjugate_gradient
from .gradient_descent import gradient_descent, gradient_descent_in_alpha
from .gradient_descent_plus_plus import gradient_descent_plus_plus
from .momentum import chebyshev, heavy_ball
from .nadaraya_watson import nadaraya_watson
from .newton_schulz import newton_schulz
from .preconditioned_conjugate_gradient import preconditioned_conjugate_gradient
from .richardson import richardson

__all__ = [
    "SUPPORTS",
    "SUPPORTS_AND_QUERIES",
    "Options",
    "ReLU",
    "Softmax",
    "chebyshev",
    "conjugate_gradient",
    "gradient_descent",
    "gradient_descent_in_alpha",
    "gradient_descent_plus_plus",
    "heavy_ball",
    "machine",
    "nadaraya_watson",
    "newton_schulz",
    "preconditioned_conjugate_gradient",
    "richardson",
]
