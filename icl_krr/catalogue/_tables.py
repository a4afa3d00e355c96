"""Catalogue rows for the kernels, the families of tasks and their batteries.

A battery changes a family of tasks in one respect.
"""

from ._rows import Battery, Family, Kernel

KERNELS = {
    row.name: row
    for row in (
        Kernel("linear", "icl_krr.kernels:Linear", "featured"),
        Kernel("polynomial", "icl_krr.kernels:Polynomial", "featured", usual=False),
        Kernel("exponential", "icl_krr.kernels:Exponential", "positive"),
        Kernel("gaussian", "icl_krr.kernels:Gaussian", "positive", ("rbf",), bounded=True),
        *(
            Kernel(name.lower(), f"icl_krr.kernels:{name}", "positive", bounded=True, usual=False)
            for name in ("Matern12", "Matern32", "Matern52")
        ),
    )
}

FAMILIES = {
    row.name: row
    for row in (
        Family(
            "gaussian_process",
            "icl_krr.experiments._shared.runs:gaussian_process",
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
        Family("table", "icl_krr.experiments._shared.runs:table", read=("table", "target")),
    )
}

BATTERIES = {
    row.name: row
    for row in (
        Battery("fewer_supports", supports=0.5),
        Battery("more_supports", supports=2),
        Battery("less_noise", noise=0.1),
        Battery("more_noise", noise=10),
        Battery("conditioning", condition=10),
        Battery("duplicates", repeated=True),
        Battery("smaller_x", x=0.5),
        Battery("larger_x", x=2),
        Battery("smaller_y", y=0.25),
        Battery("larger_y", y=4),
    )
}
