"""The works that the claims quote."""

from __future__ import annotations

OURS = "ours alone"

REFERENCES = {
    "Cawley 2025": "L. Cawley, MetaRepICL, 2025, https://github.com/fxcawley/MetaRepICL",
    "Choromanski et al. 2021": "K. Choromanski et al., Rethinking attention with Performers, "
    "ICLR 2021, https://arxiv.org/abs/2009.14794",
    "TheoremPath 2026": "TheoremPath, Attention as kernel regression, 2026, "
    "https://theorempath.com/topics/attention-as-kernel-regression",
    "Tsai et al. 2019": "Y.-H. H. Tsai, S. Bai, M. Yamada, L.-P. Morency, R. Salakhutdinov, "
    "Transformer dissection: an unified understanding for Transformer's attention via the lens of "
    "kernel, EMNLP 2019, https://arxiv.org/abs/1908.11775",
    "Yan et al. 2026": "M. Yan, D. Li, C. Kulick, S. Tang, Transformers can implement "
    "preconditioned Richardson iteration for in-context Gaussian kernel regression, 2026, "
    "https://arxiv.org/abs/2605.08475",
}
"""Authors and year, as the claims cite them, and the work."""
