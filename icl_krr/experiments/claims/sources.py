"""The works that the claims quote."""

from __future__ import annotations

OURS = "ours alone"

REFERENCES = {
    "Cawley 2025": "L. Cawley, MetaRepICL, 2025, https://github.com/fxcawley/MetaRepICL",
    "Yan et al. 2026": "M. Yan, D. Li, C. Kulick, S. Tang, Transformers can implement "
    "preconditioned Richardson iteration for in-context Gaussian kernel regression, 2026, "
    "https://arxiv.org/abs/2605.08475",
}
"""Authors and year, as the claims cite them, and the work."""
