"""Bayesian model averaging over kernels and ridges, in one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel, check_pairs
from ..transformer.weights import Problem, Transformer
from .assembly.average import GroupAverage
from .assembly.choice import construction
from .assembly.options import Options
from .assembly.prefix import check_featured, feature_machine
from .assembly.relu import ReLU
from .prefix_conjugate_gradient import FORMS


@construction
def bayesian_average(
    kernel: Kernel | Sequence[Kernel],
    *,
    num_features: int,
    ridges: Float[Array, " G"],
    steps: int,
    form: str = "textbook",
    approximates: Kernel | Sequence[Kernel] | None = None,
    sharpness: float | Float[Array, ""] = 1.0,
    edges: Float[Array, " E"] | None = None,
    tokens: str = "pairs",
    max_supports: int | None = None,
    **options: Unpack[Options],
) -> Transformer:
    r"""Build a causal transformer that averages the posteriors of G Gaussian processes.

    Every model g, a pair of a kernel and a ridge $\lambda_g$, has its own group of channels, in
    which conjugate gradient computes the mean $f_{gi}$ and the variance $v_{gi}$ of token i from
    the supports before it (see `prefix_posterior`). With $s_{gi} = \lambda_g + v_{gi}$, the
    variance of an output,

    $$e_{gi} = \sum_{j < i} \log N(y_j; f_{gj}, s_{gj}), \quad
    w_{gi} = \frac{\exp(\beta e_{gi})}{\sum_h \exp(\beta e_{hi})}, \quad
    \bar f_i = \sum_g w_{gi} f_{gi}$$

    By the chain rule of probability, $e_{gi}$ is the log marginal likelihood of the supports before
    i. So with $\beta = 1$ the queries have exact Bayesian model averaging with equal prior
    probabilities. For $\beta \to \infty$ they have the model with the largest evidence (empirical
    Bayes). The model is told the family of kernels and ridges, and nothing about the task.

    One head sums the evidence. MLPs compute one logarithm for each model, and
    $1 / w_{gi} = \sum_h \exp(\beta (e_{hi} - e_{gi}))$ from $G^2$ differences, which are cut at
    80, so that nothing overflows in float32: no weight is smaller than about $e^{-80}$. These
    operations run in the same blocks as the solver. A step takes 7 blocks in the form "textbook",
    as that of `prefix_posterior`. In the form "fused" it takes 6, and 7 with `edges`. A block has
    at most 2 heads for each model.

    The operations read the iterate before the step. So after t steps, the slots `means`,
    `variances`, `log_evidence`, `weights` and `prediction` belong to iterate t - 1 of conjugate
    gradient, and m + 1 steps are exact for m features without rounding; 3 m are safer. Before
    convergence, variances are too small, by at most `variance_gaps` (see `prefix_posterior`; read
    them at all supports, `icl_krr.read_outs(model, task, along=True)`, because all count), and
    the evidence is wrong: an error of a variance that is small beside the ridge can still be large
    in the evidence, which sums over all supports.

    A model with one output takes tasks with several, and gives each its own evidence and weights.
    With `num_outputs`, all outputs are draws of the same model, and their log densities are added.

    Args:
        num_features: as in `icl_krr.constructions`, which also says what is raised.
        kernel: kernel with a feature map, such as `Linear`, or G of them; for bandwidths,
            random or Nystrom features of kernels with these bandwidths, as `icl_krr.Features(map)`.
            If the numbers of features differ, the smaller groups are filled with zeros.
        ridges: ridge $\lambda_g$ > 0 of every model, the variance of its noise; may be traced. In
            float32, a ridge below $10^{-5} |\phi|^2$ can make variances wrong. Those below 0
            count as 0 in the evidence, and mostly the model loses its weight. `icl_krr.check`
            compares prediction and weights with exact averaging.
        steps: number of steps, >= 1. After one step, mean and variance of the functions are still
            0, because the operations read the iterate before the step.
        form: order of the operations, "textbook" (default) or "fused" (see `conjugate_gradient`).
        approximates: kernel that the features of all models approximate, or G of them, with
            $k(x, x) \geq |\phi(x)|^2$. It adds what the features leave out to the variances of the
            result (see `prefix_posterior`), not to those of the evidence, which is that of the
            features. Default None.
        sharpness: exponent $\beta$ > 0; default 1. May be traced.
        edges: E increasing numbers, for a slot `bins` with the probabilities that an output is
            below the first edge, between neighbouring edges, and above the last edge, which are
            differences of $\sum_g w_{gi} \Phi((c - f_{gi}) / \sqrt{s_{gi}})$ at the edges c;
            default None: no such slot.
        tokens, max_supports: as in `CausalOptions`.
        options: further keywords, explained in `Options`; the arithmetic must be "exact".

    Returns:
        A `Transformer` with the states means [T, G r], variances (of an output: ridge included),
        variance_gaps, log_evidence and weights [T, G], prediction [T, r] and, with `edges`, bins
        [T, r (E + 1)]. All of them are read-outs (see `icl_krr.read_outs`).

    Source: Hoeting, Madigan, Raftery, Volinsky, Bayesian model averaging: a tutorial, 1999, eq. 1;
    Dawid, Present position and potential developments: the prequential approach, 1984, for the
    chain rule; Mueller, Hollmann, Arango, Grabocka, Hutter, Transformers can do Bayesian inference,
    2022, for outputs in bins.

    >>> import icl_krr as ik, numpy as np
    >>> ridges = np.array([0.1, 10.0])
    >>> model = bayesian_average(ik.Linear(), num_features=1, ridges=ridges, steps=2)
    >>> x = np.linspace(0.5, 2, 8)[:, None]
    >>> task = ik.Task(x=x, y=3 * x[:, 0], x_query=x[-1:])
    >>> prediction, cache = ik.run_with_cache(model, task)
    >>> round(float(prediction[0]), 3), bool(cache["weights"][-1, -1, 0] > 0.999)
    (5.959, True)
    """
    checks.count("steps", steps)
    kernels = check_pairs(kernel, ridges)
    checks.choice("form", form, tuple(FORMS))
    checks.positive_scalar("sharpness", sharpness)
    if approximates is not None:
        approximates = check_pairs(approximates, ridges, "approximates")
    if edges is not None:
        checks.increasing("edges", edges)
    if "ridge" in options:
        raise TypeError("keyword 'ridge' is unknown to bayesian_average; use ridges, an array [G]")
    for name in ("prefix", "log_gate", "strength", "window"):
        if name in options:
            raise TypeError(
                f"keyword {name!r} is unknown to bayesian_average: the evidence is that of earlier "
                "supports, which all count alike"
            )
    arithmetic = options.get("arithmetic")
    if isinstance(arithmetic, ReLU):
        raise ValueError(
            "arithmetic must be 'exact' for bayesian_average, which computes logarithms and "
            f"exponentials, got {arithmetic!r}"
        )
    if callable(options.get("sketch")):
        raise ValueError(
            "sketch must be a matrix for bayesian_average, got a feature map; pass "
            "icl_krr.Features(map) as a kernel"
        )
    for one in kernels:
        check_featured(one)
    kind = partial(GroupAverage, kernels=kernels, ridges=ridges)
    causal: dict[str, Any] = {"tokens": tokens, "max_supports": max_supports}
    m = feature_machine(kind, kernels[0], num_features, ridge=None, **causal, **options)
    if m.sketch is not None:
        kernels = tuple(one.sketched(m.sketch) for one in kernels)
    m.problem = Problem(kernels, ridges, sharpness)
    m.approximated, m.sharpness, m.edges = approximates, sharpness, edges
    m.declare_average()
    return FORMS[form](m, 1.0, steps)
