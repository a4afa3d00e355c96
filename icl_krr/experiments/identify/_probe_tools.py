"""Parts of `icl_krr.probes` that benchmarks use and that are not in its door."""

# ruff: noqa: F401
from ...probes._changing.interventions import SiteCodes, point_names, role_means, run_interventions
from ...probes._naming.candidates import run_oracle
from ...probes._naming.distances import CandidateResult
from ...probes._naming.elimination import RESOLUTION
from ...probes._naming.identification import EXACT, IDENTIFIED, NEAR, TIED, status_of
from ...probes._naming.layer_predictions import run_model, split_halves
from ...probes._reading.readouts import ridge_regression, streams_at, streams_of_batch
from ...probes._resampling import INTERVAL_QUANTILES, paired_differences, resamples
