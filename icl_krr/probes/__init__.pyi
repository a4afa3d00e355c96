from .changing.interventions import ablate, patch
from .changing.sites import Site, sites
from .changing.slots import round_slots, transplant
from .check import check
from .naming.candidate_fit import CandidateFit, align, fit_candidate
from .naming.identification import Identification
from .naming.identify import Agreement, agreement, identify, identify_arrays
from .naming.stream_identify import identify_streams
from .reading.arrays import array_answers, decoder_answers, prefixes, torch_arrays
from .reading.derivatives import Sensitivities, hat_matrix, parameter_sensitivities, sensitivities
from .reading.drift import drift, linear_maps
from .reading.filters import Filter, Reading, along_eigenvector, read_filter, spectral_filter
from .reading.hyperparameters import effective
from .reading.influence import Influence, influence, weighted
from .reading.readouts import Probe, fit_probe, has_slot, layerwise, streams

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
    "array_answers",
    "check",
    "decoder_answers",
    "drift",
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
    "weighted",
]
