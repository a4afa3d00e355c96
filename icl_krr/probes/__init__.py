"""Probes: what a model computes layer by layer, and which solver that is."""

from .alignment import align
from .candidates import CANDIDATES
from .filters import Filter, effective, spectral_filter
from .fitting import Fit, fit
from .hat import hat_matrix
from .identify import Identification, identify
from .readouts import Probe, fit_probe, has_slot, layerwise, streams

__all__ = [
    "CANDIDATES",
    "Filter",
    "Fit",
    "Identification",
    "Probe",
    "align",
    "effective",
    "fit",
    "fit_probe",
    "has_slot",
    "hat_matrix",
    "identify",
    "layerwise",
    "spectral_filter",
    "streams",
]
