from ._changing.interventions import ablate, patch
from ._changing.sites import Site, sites
from ._changing.slots import round_slots, transplant
from ._check import check
from ._naming.candidate_fit import CandidateFit, align, fit_candidate
from ._naming.identification import Identification
from ._naming.identify import Agreement, agreement, identify, identify_arrays
from ._naming.stream_identify import identify_streams
from ._reading.arrays import (
    array_layer_predictions,
    decoder_layer_predictions,
    prefixes,
    torch_arrays,
)
from ._reading.derivatives import Sensitivities, hat_matrix, parameter_sensitivities, sensitivities
from ._reading.filters import Filter, Reading, along_eigenvector, read_filter, spectral_filter
from ._reading.hyperparameters import effective
from ._reading.influence import Influence, influence, weighted
from ._reading.readouts import Probe, fit_probe, has_slot, layerwise, streams
from ._reading.weight_difference import linear_maps, weight_difference

__all__ = [
    "Agreement",
    "CandidateFit",
    "Filter",
    "Identification",
    "Influence",
    "Probe",
    "Reading",
    "Sensitivities",
    "Site",
    "ablate",
    "agreement",
    "align",
    "along_eigenvector",
    "array_layer_predictions",
    "check",
    "decoder_layer_predictions",
    "effective",
    "fit_candidate",
    "fit_probe",
    "has_slot",
    "hat_matrix",
    "identify",
    "identify_arrays",
    "identify_streams",
    "influence",
    "layerwise",
    "linear_maps",
    "parameter_sensitivities",
    "patch",
    "prefixes",
    "read_filter",
    "round_slots",
    "sensitivities",
    "sites",
    "spectral_filter",
    "streams",
    "torch_arrays",
    "transplant",
    "weight_difference",
    "weighted",
]
