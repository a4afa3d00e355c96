r"""Bounds and identities behind the claims, one in each function.

The code in brackets, such as (C4), names the claim, which `icl-krr verify` tests. In formulas
$A = K + \lambda I$, and $\hat K$, $\hat k$ and $\hat A = \hat K + \lambda I$ are those of a sketch.
`RATES` has the rate of each solver of the catalogue that has one. Arguments of several functions:

Args:
    kernel: kernel $k$ of the regression; a positive kernel, such as `Exponential` or `Gaussian`,
        where row sums or logarithms of its values are needed.
    ridge: ridge $\lambda$ > 0, in units of $k(x, x)$.
    sink: weight $c$ > 0 of the attention sink, which adds $c$ to every row sum.
    sigma: eigenvalues of $K$ [n], ascending, as `eigenvalues` returns them; the last is $\sigma_1$.
        A filter takes eigenvalues $\sigma$ of any shape.
    low, high: bounds $a$ > 0 and $b$ on the eigenvalues of $A$, or ends of a table.
    step_size: step size $\eta$ of gradient descent.
    width: number m of features that are kept, 0 to n; may be traced.
    temperature: temperature $\tau$ > 0 of the exponential kernel.
    bandwidth: lengthscale $h$ > 0 of the Gaussian kernel. For the exponential kernel on a sphere of
        radius 1, it is the square root of the temperature.
    dimension: dimension $d$ of the set of inputs, >= 1; p - 1 on a sphere.
    noise: variance of the noise in y.
    logit_bound: bound $L$ on the absolute logits.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
