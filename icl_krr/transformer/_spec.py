"""The static settings of the forward pass."""

from __future__ import annotations

from dataclasses import dataclass, fields

from .._core import checks
from ..residual import TOKENS


@dataclass(frozen=True)
class Spec:
    r"""Static settings of the forward pass: hashable, and part of the structure of the pytree.

    Args:
        num_outputs: number of outputs r of a task. A model with one output also takes tasks with
            more outputs and predicts each output separately.
        attention: "softmax" or "linear" (no softmax). The logits are not scaled in either case: a
            factor such as $1 / \sqrt{d_k}$ belongs to the query weights.
        causal: whether a token attends only to the aggregator (the first token) and to earlier
            tokens.
        inclusive: whether a causal token also attends to itself.
        tokens: "pairs" has one token per support; "interleaved" has one token for the x of a
            support, followed by one token for its y.
        streaming: whether softmax attention is computed in tiles: its memory is then linear in the
            number of tokens, and every block recomputes its patterns. None uses them above 2048
            tokens.
        centred: whether the embedding subtracts the mean of the unmasked supports' x from every x
            (see `icl_krr.residual.embed`).
        max_supports: largest number of supports for which the model has enough steps.
        aggregator: whether every token attends to the aggregator. With False, no token attends to
            it, and a query attends to itself, as in GPT-2; `inclusive` must then be True.

    >>> Spec(num_features=3, attention="linear").causal
    False
    """

    num_features: int
    num_outputs: int = 1
    attention: str = "softmax"
    causal: bool = False
    tokens: str = "pairs"
    streaming: bool | None = None
    centred: bool = False
    inclusive: bool = False
    max_supports: int | None = None
    aggregator: bool = True

    def __post_init__(self):
        for field in fields(self):
            if field.type == "bool":
                checks.flag(field.name, getattr(self, field.name))
        checks.count("num_features", self.num_features)
        checks.count("num_outputs", self.num_outputs)
        if self.max_supports is not None:
            checks.count("max_supports", self.max_supports)
        checks.choice("attention", self.attention, ("linear", "softmax"))
        checks.choice("tokens", self.tokens, TOKENS)
        if self.inclusive and not self.causal:
            raise ValueError("causal must be True if inclusive is True, got False; set causal=True")
        if not (self.aggregator or self.inclusive):
            raise ValueError(
                "inclusive must be True if aggregator is False, got False; set inclusive=True"
            )

    @property
    def order(self) -> str:
        """The causal mask: "" (none), "exclusive" (earlier tokens) or "inclusive" (itself, too).

        With "own", tokens that no other token reads read themselves, too.
        """
        if not self.aggregator:
            return "own"
        return ("inclusive" if self.inclusive else "exclusive") if self.causal else ""
