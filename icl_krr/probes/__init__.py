"""Probes: what a model computes layer by layer, and which solver that is."""

from .candidate_fit import CandidateFit, fit_candidate
from .drift import drift, linear_maps
from .filters import Filter, effective, spectral_filter
from .hat import hat_matrix
from .identify import Identification, identify
from .influence import Influence, influence, weighted
from .interventions import ablate, patch
from .monotone_alignment import align
from .readouts import Probe, fit_probe, has_slot, layerwise, streams
from .sensitivities import Sensitivities, parameter_sensitivities, sensitivities
from .sites import Site, sites
from .swap import Swap, swap
from .transplant import transplant

__all__ = [
    "CandidateFit",
    "Filter",
    "Identification",
    "Influence",
    "Probe",
    "Sensitivities",
    "Site",
    "Swap",
    "ablate",
    "align",
    "drift",
    "effective",
    "fit_candidate",
    "fit_probe",
    "has_slot",
    "hat_matrix",
    "identify",
    "influence",
    "layerwise",
    "linear_maps",
    "parameter_sensitivities",
    "patch",
    "sensitivities",
    "sites",
    "spectral_filter",
    "streams",
    "swap",
    "transplant",
    "weighted",
]
