"""The works that the claims quote."""

from __future__ import annotations

from collections.abc import Iterable

OURS = "ours alone"

REFERENCES = {
    "Cawley 2025": "L. Cawley, MetaRepICL, 2025, https://github.com/fxcawley/MetaRepICL",
    "Choromanski et al. 2021": "K. Choromanski et al., Rethinking attention with Performers, "
    "ICLR 2021, https://arxiv.org/abs/2009.14794",
    "Fokoue 2026": "E. Fokoue, Multi-head attention as ensemble Nadaraya-Watson estimation, 2026, "
    "https://arxiv.org/abs/2605.20271",
    "Lo Gerfo et al. 2008": "L. Lo Gerfo, L. Rosasco, F. Odone, E. De Vito, A. Verri, Spectral "
    "algorithms for supervised learning, Neural Computation 20, 2008",
    "Peng et al. 2025": "L. Peng et al., Gated KalmaNet: a fading memory layer through test-time "
    "ridge regression, 2025, https://arxiv.org/abs/2511.21016",
    "TheoremPath 2026": "TheoremPath, Attention as kernel regression, 2026, "
    "https://theorempath.com/topics/attention-as-kernel-regression",
    "Tsai et al. 2019": "Y.-H. H. Tsai, S. Bai, M. Yamada, L.-P. Morency, R. Salakhutdinov, "
    "Transformer dissection: an unified understanding for Transformer's attention via the lens of "
    "kernel, EMNLP 2019, https://arxiv.org/abs/1908.11775",
    "Vaswani et al. 2017": "A. Vaswani et al., Attention is all you need, NeurIPS 2017, "
    "https://arxiv.org/abs/1706.03762",
    "von Oswald et al. 2023": "J. von Oswald et al., Transformers learn in-context by gradient "
    "descent, ICML 2023, https://arxiv.org/abs/2212.07677, and its notebooks, "
    "https://github.com/google-research/self-organising-systems",
    "von Oswald et al. 2025": "J. von Oswald et al., MesaNet: sequence modeling by locally optimal "
    "test-time training, 2025, https://arxiv.org/abs/2506.05233",
    "Yan et al. 2026": "M. Yan, D. Li, C. Kulick, S. Tang, Transformers can implement "
    "preconditioned Richardson iteration for in-context Gaussian kernel regression, 2026, "
    "https://arxiv.org/abs/2605.08475",
}
"""Authors and year, as the claims cite them, and the work."""


def authors(source: str) -> list[str]:
    """Return the keys of `REFERENCES` in the source of a claim (see `claim.Claim`)."""
    return [part.partition(",")[0] for part in source.split("; ")]


def works(sources: Iterable[str]) -> dict[str, str]:
    """Return the rows of `REFERENCES` that the sources of some claims name."""
    named = {author for source in sources for author in authors(source)}
    return {name: work for name, work in REFERENCES.items() if name in named}
