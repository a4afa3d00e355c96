from ._candidate_models import CHANGED, FEWER, KERNELS, exact, fine_tuned, first, kernels_of
from ._distractor_solvers import (
    averaged_descent,
    descent,
    nesterov,
    one_attention,
    steepest_descent,
)
from ._folder import write_bench
from ._load import read_labels, read_models
from ._models import Answers, answers_and_hats, answers_of
from ._open_set import functions_of, weights_of
from ._reparametrisation import perturbed, rotated, superposed
from ._score import OUTCOMES, Share, markdown, outcome, score, summary
from ._settings import LINEAR, PROCESS, QUICK, BenchConfig, Setting, largest, setting
from ._verdicts import (
    IDENTIFIED,
    NEAR,
    NONE,
    TIED,
    Verdict,
    identify_answers,
    read_verdicts,
    row_of,
    verdict_of,
)

__all__ = [
    "CHANGED",
    "FEWER",
    "IDENTIFIED",
    "KERNELS",
    "LINEAR",
    "NEAR",
    "NONE",
    "OUTCOMES",
    "PROCESS",
    "QUICK",
    "TIED",
    "Answers",
    "BenchConfig",
    "Setting",
    "Share",
    "Verdict",
    "answers_and_hats",
    "answers_of",
    "averaged_descent",
    "descent",
    "exact",
    "fine_tuned",
    "first",
    "functions_of",
    "identify_answers",
    "kernels_of",
    "largest",
    "markdown",
    "nesterov",
    "one_attention",
    "outcome",
    "perturbed",
    "read_labels",
    "read_models",
    "read_verdicts",
    "rotated",
    "row_of",
    "score",
    "setting",
    "steepest_descent",
    "summary",
    "superposed",
    "verdict_of",
    "weights_of",
    "write_bench",
]
