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

    It is `icl_krr.solvers.bayesian_average`. Every model g, a pair of a kernel and a ridge
    $\lambda_g$, has its own group of channels, in which conjugate gradient computes mean and
    variance (see `prefix_posterior`). One head sums the evidence. MLPs compute one logarithm for
    each model, and $1 / w_{gi} = \sum_h \exp(\beta (e_{hi} - e_{gi}))$ from $G^2$ differences,
    which are cut at 80, so that nothing overflows in float32. A step takes 7 blocks in the form
    "textbook"; in the form "fused" it takes 6, and 7 with `edges`. A block has at most 2 heads for
    each model.

    Before convergence, variances are too small, by at most `variance_gaps` (read them at all
    supports, `icl_krr.read_outs(model, task, along=True)`, because all count), and the evidence is
    wrong: an error of a variance that is small beside the ridge can still be large in the evidence.
    A ridge below $10^{-5} |\phi|^2$ can make variances of float32 negative, which count as 0 in the
    evidence. `icl_krr.check` compares prediction and weights with exact averaging.

    A model with one output takes tasks with several, and gives each its own evidence and weights.
    With `num_outputs`, all outputs are draws of the same model, and their log densities are added.
    The states, all of them read-outs, are means [T, G r], variances (of an output: ridge included),
    variance_gaps, log_evidence and weights [T, G], prediction [T, r] and, with `edges`, bins [T, r
    (E + 1)]. The arithmetic must be "exact".

    Args:
        kernel: kernel with a feature map, or G of them; for bandwidths, random or Nystrom features
            of kernels with these bandwidths, as `icl_krr.Features(map)`. If the numbers of features
            differ, the smaller groups are filled with zeros.
        edges: E increasing numbers, for a slot `bins` with the probabilities that an output is
            below the first edge, between neighbouring edges, and above the last edge, differences
            of $\sum_g w_{gi} \Phi((c - f_{gi}) / \sqrt{s_{gi}})$ at the edges c; default None: no
            such slot.
        tokens, max_supports: as in `CausalOptions`.

    Source: Mueller, Hollmann, Arango, Grabocka, Hutter, Transformers can do Bayesian inference,
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
