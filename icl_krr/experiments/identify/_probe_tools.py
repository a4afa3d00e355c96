"""Parts of `icl_krr.probes` that benchmarks use and that are not in its door."""

from ...probes._changing.interventions import (
    SiteCodes as SiteCodes,
    point_names as point_names,
    role_means as role_means,
    run_interventions as run_interventions,
)
from ...probes._naming.candidates import run_oracle as run_oracle
from ...probes._naming.distances import CandidateResult as CandidateResult
from ...probes._naming.elimination import RESOLUTION as RESOLUTION
from ...probes._naming.identification import (
    EXACT as EXACT,
    IDENTIFIED as IDENTIFIED,
    NEAR as NEAR,
    TIED as TIED,
    status_of as status_of,
)
from ...probes._naming.layer_predictions import run_model as run_model, split_halves as split_halves
from ...probes._reading.readouts import (
    ridge_regression as ridge_regression,
    streams_at as streams_at,
    streams_of_batch as streams_of_batch,
)
from ...probes._resampling import (
    INTERVAL_QUANTILES as INTERVAL_QUANTILES,
    paired_differences as paired_differences,
    resamples as resamples,
)
