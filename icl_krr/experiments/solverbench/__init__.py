"""SolverBench: models of known algorithm and models that run no candidate, written and scored.

A method that always names the nearest solver looks right on models that run one. So `icl-krr
solverbench write` also writes models that run none, the open set.

The folder `models` is what a participant may see. `manifest.json` lists the models, with versions,
dtype and the checksum of every file. Each family of tasks has a file `tasks/FAMILY.npz` with x
[b, n, p], y [b, n] and x_query [b, q, p]; the first half of the tasks is to fit, the second half to
score. Each model has a file `answers.npz` with its predictions before the first layer and after
every layer, `answers` [b, L + 1, q], and their derivatives with respect to y, `hats`
[b, L + 1, q, n]. So a participant needs no JAX. Most models also have weights, `model.safetensors`
(`icl_krr.export.load`), and some a T5 encoder in the folder `t5`. The layout in a file of weights
names the slots, so a participant must say whether the method reads the layout.

The folder `labels` has the truth: what each model runs, and the states of its oracle after every
layer. The variants are

- exact: constructions of every candidate of `identify`.
- causal: constructions of solvers in which a token sees only earlier supports.
- rotated: the stream is merged and multiplied by a random orthogonal matrix. The layers are read
  by the model's own readout, or by a linear probe that is fitted to the outputs y.
- superposed: the stream has fewer channels than the construction.
- perturbed: every weight is multiplied by 1 + level z with z standard normal.
- fine-tuned: the weights were trained on the tasks, from the construction on.
- open set: distractors, which run no candidate: weights of other solvers
  (`_distractor_solvers`), and functions of a task without weights (`_distractor_functions`).

A table of verdicts has the columns model, status and names. `icl-krr solverbench score TABLE.csv`
gives the share of right names in every variant and of false positives in the open set, with
Wilson's intervals. `icl-krr solverbench identify` writes the table of `icl_krr.probes.identify`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
