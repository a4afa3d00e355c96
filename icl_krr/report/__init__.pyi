from ._explorer import explorer_section
from ._identification import identification_section
from ._page import Facts, Section, claims_section, facts_of, provenance, render
from ._scaling import scaling_section
from ._snapshots import snapshots_section
from ._sweep import sweep_section, training_section

__all__ = [
    "Facts",
    "Section",
    "claims_section",
    "explorer_section",
    "facts_of",
    "identification_section",
    "provenance",
    "render",
    "scaling_section",
    "snapshots_section",
    "sweep_section",
    "training_section",
]
