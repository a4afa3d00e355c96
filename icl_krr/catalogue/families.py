"""Catalogue rows for the families of tasks."""

from .rows import Family

FAMILIES = {
    row.name: row
    for row in (
        Family(
            "gaussian_process",
            "icl_krr.experiments.shared.families:gaussian_process",
            read=("kernel", "spread", "noise_spread"),
        ),
        Family(
            "linear",
            "icl_krr.tasks:LinearRegression",
            {"condition": "condition", "sparsity": "sparsity"},
        ),
        Family("relu_network", "icl_krr.tasks:ReLUNetwork", {"hidden": "hidden"}),
        Family("decision_tree", "icl_krr.tasks:DecisionTree", {"tree_depth": "depth"}),
        Family("sinusoids", "icl_krr.tasks:Sinusoids", {"frequency": "frequency"}),
        Family("table", "icl_krr.experiments.shared.families:table", read=("table", "target")),
    )
}
