"""Tasks: supports to learn from and queries to predict, drawn at random or read from a table.

**Your own table.** The command line predicts one column of a CSV file from the others:

```sh
icl-krr predict TABLE.csv --target COLUMN
```

`--queries QUERIES.csv` names a file with the rows to predict. Without it, random rows of the table
become supports and the other rows become queries. Every other column is a feature, `--encode`
encodes columns of text, and `--missing` leaves out or fills cells without a value. `--out FOLDER`
writes `predictions.csv`, which has one line for each query: the number of its row, y if it is
known, the prediction of the transformer, that of exact KRR, and the standard deviation and the 95 %
interval of a new y. If cells of queries were filled, a column names theirs, and the deviation
covers the values that they have in the supports. It writes the files of `icl-krr demo`, too.

Leave-one-out cross-validation on the supports chooses the kernel and the hyperparameters that are
not given, separately for KRR and for Nadaraya-Watson; a grid grows while its best point is at an
edge. With `--bandwidths each`, each feature has a bandwidth of its own. Then a gradient method
chooses bandwidths and ridge by the marginal likelihood of the supports, and the command also prints
how important each feature is. The mean of every column over the supports is subtracted, so the
errors for KRR are those of a regression with a free constant that has no penalty. Maximum
likelihood on the supports estimates the amplitude of the prior, unless `--amplitude` is given. The
transformer has as many steps as it needs to converge, at most 256 in float32 and 1024 in float64,
unless `--steps` is given. It computes in float32, and again in float64 if float32 has too few
digits, which the command says. `JAX_ENABLE_X64=1` selects float64 at once. Compiled programs are
stored in the user's cache folder, so a second run takes about half of the time;
`JAX_COMPILATION_CACHE_DIR` selects another folder, and `JAX_ENABLE_COMPILATION_CACHE=false` turns
the cache off. `XLA_FLAGS` replaces the flags of XLA with which commands compile in half the time.

In Python, `read_table` reads the file, `read_queries` reads the rows to predict, and `split` makes
a `Task` from them. Every model and solver takes that task:

>>> import icl_krr as ik
>>> task = ik.tasks.split(ik.tasks.diabetes(), 300, seed=0)
>>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=10, ridge=1.0, steps=8)
>>> ik.predict(model, task).shape
(142,)

`icl_krr.InContextRegressor` is a construction as an estimator of scikit-learn.

**Random tasks.** A sampler is a frozen dataclass that describes a distribution of tasks. `sample`
draws a task from a sampler and a random key. `batch` makes one batch of tasks, also of unequal
length. `map_tasks` applies any function to many tasks at once. `shifted` changes a family in one
respect, for tests outside of the training distribution.

A sampler of random functions $f$ returns $f$ plus noise as y at the supports, and $f$ without noise
as y_query at the queries. Samplers of tasks take these arguments:

Args:
    noise: variance of $y - f$ at the supports, a scalar >= 0; may be traced; default 0.
    num_supports: number n of supports; default 64.
    num_queries: number q of queries; default 1.
    num_outputs: number r of outputs, so that y is [n, r]; default None, one output with y [n].
    inputs: distribution of x: "normal" (default, standard normal), "uniform" in $(-1, 1)^p$ or
        "sphere" (uniform on the unit sphere).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
