"""Catalogue entries for the kernels, the families of tasks and the distribution shifts.

A shift changes a family of tasks in one respect.
"""

from ._entries import FamilyEntry, KernelEntry, ShiftEntry, by_name

KERNELS = by_name(
    KernelEntry("linear", "featured"),
    KernelEntry("polynomial", "featured", usual=False),
    KernelEntry("exponential", "positive"),
    KernelEntry("gaussian", "positive", ("rbf",), bounded=True),
    KernelEntry("matern12", "positive", bounded=True, usual=False),
    KernelEntry("matern32", "positive", bounded=True, usual=False),
    KernelEntry("matern52", "positive", bounded=True, usual=False),
)

FAMILIES = by_name(
    FamilyEntry("gaussian_process", recipe_fields=("kernel", "spread", "noise_spread")),
    FamilyEntry("linear", {name: name for name in ("condition", "conditions", "sparsity")}),
    FamilyEntry("relu_network", {"hidden": "hidden"}),
    FamilyEntry("decision_tree", {"tree_depth": "depth"}),
    FamilyEntry("sinusoids", {"frequency": "frequency"}),
    FamilyEntry("table", recipe_fields=("table", "target")),
)

SHIFTS = by_name(
    ShiftEntry("fewer_supports", supports=0.5),
    ShiftEntry("more_supports", supports=2),
    ShiftEntry("less_noise", noise=0.1),
    ShiftEntry("more_noise", noise=10),
    ShiftEntry("conditioning", condition=10),
    ShiftEntry("duplicates", repeated=True),
    ShiftEntry("smaller_x", x=0.5),
    ShiftEntry("larger_x", x=2),
    ShiftEntry("smaller_y", y=0.25),
    ShiftEntry("larger_y", y=4),
)
