"""C14: a ReLU MLP computes products and quotients by piecewise linear tables."""

import jax
import numpy as np

from .claim import HOLDS, TASK, Claim, Verdict, at_least, at_most, judge, named, within
from .measuring import Plot, Rows, tidy
from .tabulated import DEPTH, WIDTH, Config, Series, measure, table_errors


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    rows, found, slopes, growth = [], [], [], []
    for series in config.series:
        found.append(part := measure(series, config, key))
        log = np.mean(np.log(part.tables), axis=0)
        slopes.append(np.mean(np.polyfit(np.log(config.widths), log.T, 1)[0]))
        # the error falls as width^-2, so the width that is needed grows as the root of the error
        growth.append(np.mean(np.polyfit(np.log(series.sizes), log / 2, 1)[0]))
        axes = {"inputs": [series.inputs], "ridge": [series.ridge], "draw": range(config.draws)}
        columns = {"error": part.error, "e": part.e, "blocks": part.depth + 2}
        columns["needed width ~ n^"] = growth[-1]
        rows += tidy(axes | {"n": series.sizes, "width": config.widths}, **columns)
    error, e, size, overruns, clipped = (
        np.concatenate([getattr(part, name).ravel() for part in found])
        for name in ("error", "e", "size", "overruns", "clipped")
    )
    product, chord = table_errors()
    checks = {
        f"{WIDTH:g} sqrt(n / e) segments, {DEPTH:g} cond log(1 / e) + 2 blocks: "
        "|f - f*| <= e (our constants)": at_most(error, e, stated=True, trivial=size),
        "width that is needed for an error e ~ n^a with a <= 1/2": at_most(
            growth, 0.5, stated=True
        ),
        "sqrt(n) is loose at both ridges: a <= 0.4": at_most(growth, 0.4),
        "error that the tables cause ~ width^a, "
        "mean of a over the series, in [-2.75, -1.25]": within(np.mean(slopes), -2.75, -1.25),
        "one product: |1 - error / theory.product_table_error| <= 0.05": at_most(
            abs(1 - product), 0.05
        ),
        "one reciprocal: |1 - error / theory.reciprocal_table_error| <= 0.05": at_most(
            abs(1 - chord), 0.05
        ),
        "tables from operand_bounds of the task: "
        "number of operands outside their tables = 0": at_most(overruns, 0),
        "outputs 100 y: number of operands outside their tables, "
        "as the model reports it, >= 1": at_least(clipped, 1),
    }
    return rows, judge(*named(checks))


CLAIM = Claim(
    title="ReLU MLPs of width O(sqrt(n/e)) are enough",
    statement="For bounded data with n supports, a transformer with one softmax head and ReLU MLPs "
    "of width O(sqrt(n / e)) predicts f*, exact kernel ridge regression with the Gaussian kernel, "
    "with an error of at most e. (C13 is about the number of its blocks.)",
    truth="In addition: the models here have about cond log(1 / e) blocks, where cond is the "
    "condition number of the preconditioned matrix, which grows with n if the ridge is fixed. With "
    "w segments in a table, the error of a product of numbers of size up to B is at most "
    "B^2 / w^2. sqrt(n) is loose: the width that is needed grows as n^a with a between 0.15 and "
    "0.4, both for x on a sphere with ridge 1 and for x in a square with ridge 0.1.",
    source="Yan et al. 2026, abstract",
    quote="Under bounded-data assumptions, we construct a single-head transformer with "
    "O(log(1/e)) blocks and MLP width O(sqrt(N/e)) that achieves e-accurate prediction for prompts "
    "of length N. Our construction reveals a functional decomposition within the transformer "
    "architecture: softmax attention produces a row-normalized Gaussian-kernel operator needed for "
    "cross-token interactions, while ReLU MLP layers act locally to approximate the intra-token "
    "scalar arithmetic required by the update.",
    expected=HOLDS,
    told=TASK,
    run=run,
    quick=Config(
        series=(Series("uniform", 1.0, (16, 64), 1950), Series("uniform", 0.1, (16, 64), 1950)),
        widths=(64, 128),
    ),
    plot=Plot(x="width", y="error", by=("inputs", "ridge", "n"), bound="e", logx=True),
)
