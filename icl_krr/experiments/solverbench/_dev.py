import importlib

import jax.numpy as jnp

idm = importlib.import_module("icl_krr.probes.identify")
from icl_krr.probes.distances import ModelAnswers


def identify_arrays(fitted, scored, answers, **kw):
    a = answers
    m = ModelAnswers(
        fitted,
        scored,
        jnp.asarray(a.fitted)[:, 1:],
        jnp.asarray(a.scored)[:, 1:],
        jnp.asarray(a.scored_hats)[:, 1:],
        {"prediction": jnp.asarray(a.scored)[:, :1], "hat": jnp.asarray(a.scored_hats)[:, :1]},
    )
    old = idm.answers_of_model
    idm.answers_of_model = lambda *_: m
    try:
        return idm.identify(lambda t: t, fitted, scored, **kw)
    finally:
        idm.answers_of_model = old
