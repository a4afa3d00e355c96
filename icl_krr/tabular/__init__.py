"""Kernel ridge regression on tables: hyperparameters by leave-one-out, models, and intervals.

`icl_krr.InContextRegressor` and the commands `demo`, `predict` and `fit` rest on this room, which
imports no experiment. `run` takes one task and a `DepthConfig`, chooses what the config leaves open
(`choose`), builds the construction (`build`) and compares it with exact regression at every depth.
`answer` does this for a table that is divided into supports and queries, with a Gaussian process
(`process`) for the intervals.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
