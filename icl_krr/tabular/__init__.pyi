from ._answer import Answer, answer, calibration_of, errors, predictions
from ._build import build, build_model, construct, keywords, solver_keywords
from ._depth import DepthResult, run
from ._depth_config import DepthConfig, choose, choose_kernel, choose_kernels
from ._estimator import InContextRegressor
from ._held_out import leave_one_out_errors
from ._process import process

__all__ = [
    "Answer",
    "DepthConfig",
    "DepthResult",
    "InContextRegressor",
    "answer",
    "build",
    "build_model",
    "calibration_of",
    "choose",
    "choose_kernel",
    "choose_kernels",
    "construct",
    "errors",
    "keywords",
    "leave_one_out_errors",
    "predictions",
    "process",
    "run",
    "solver_keywords",
]
