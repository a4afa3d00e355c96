"""Settings of a training run. This file does not import JAX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LIKELIHOOD = "gaussian"
OBJECTIVES, PLACES = ("squared_error", LIKELIHOOD), ("queries", "every")
"""The objective that needs a predictive distribution."""


@dataclass(frozen=True)
class Training:
    """Settings of AdamW with warm-up and cosine decay, on freshly drawn tasks.

    Args:
        steps: number of updates of the weights.
        batch: number of tasks per update.
        learning_rate: largest learning rate.
        warmup: number of steps in which the learning rate rises linearly from 0 to `learning_rate`.
        decay: learning rate at the end of the cosine decay, as a fraction of `learning_rate`, 0 to
            1.
        clip: largest norm of the gradient.
        weight_decay: weight decay of AdamW. Each step also multiplies the weights by `1 - rate *
            weight_decay`, where `rate` is the current learning rate.
        objective: what is minimised, the mean over targets. "squared_error": the squared error of
            the prediction. "gaussian": minus the log density of the target under
            `icl_krr.predictive`, for a model that has a distribution. Targets at the queries are
            then outputs with noise, as those of the supports.
        loss: where the error is measured. "queries": at the queries. "every": also at every
            support, which the model predicts from the supports before it. "every" needs a causal
            model of interleaved tokens.
        target: targets at the queries. "outputs": the outputs of the tasks. "exact": the posterior
            mean, which some families can compute. "exact" keeps the expectation of the gradient and
            reduces its variance. It needs the objective "squared_error", `loss` "queries" and no
            `start_features`.
        min_supports: smallest number of supports of a task. Each task then has a random number of
            supports. None: all tasks of a step have the largest number.
        start_supports: largest number of supports at step 0, for a curriculum. None: all.
        start_features: number of non-zero features at step 0, for a curriculum. None: all.
        curriculum: number of steps until tasks have all supports and features. It must be > 0 if
            and only if `start_supports` or `start_features` is given.
        seed: seed of the training tasks, the validation tasks and random initial weights.
        log_every: number of steps between two rows of metrics and between two checkpoints.
        validation: number of validation tasks. They have all supports and features.

    >>> Training(steps=200, min_supports=4).batch
    64
    """

    steps: int = 1000
    batch: int = 64
    learning_rate: float = 1e-3
    warmup: int = 100
    decay: float = 0.0
    clip: float = 1.0
    weight_decay: float = 0.0
    objective: Literal["squared_error", "gaussian"] = "squared_error"
    loss: Literal["queries", "every"] = "queries"
    target: Literal["outputs", "exact"] = "outputs"
    min_supports: int | None = None
    start_supports: int | None = None
    start_features: int | None = None
    curriculum: int = 0
    seed: int = 0
    log_every: int = 100
    validation: int = 512
