"""The works that the claims quote."""

from __future__ import annotations

OURS = "ours alone"

REFERENCES = {
    "Choromanski et al. 2021": "K. Choromanski et al., Rethinking attention with Performers, "
    "ICLR 2021, https://arxiv.org/abs/2009.14794",
    "Cawley 2025": "L. Cawley, MetaRepICL, 2025, https://github.com/fxcawley/MetaRepICL",
    "von Oswald et al. 2023": "J. von Oswald et al., Transformers learn in-context by gradient "
    "descent, ICML 2023, https://arxiv.org/abs/2212.07677, and its notebooks, "
    "https://github.com/google-research/self-organising-systems",
    "Yan et al. 2026": "M. Yan, D. Li, C. Kulick, S. Tang, Transformers can implement "
    "preconditioned Richardson iteration for in-context Gaussian kernel regression, 2026, "
    "https://arxiv.org/abs/2605.08475",
}
"""Authors and year, as the claims cite them, and the work."""
