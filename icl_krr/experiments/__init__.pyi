from ._explorer import ExplorerConfig, explore
from ._identify.error_profile import Protocol, known_of, targets_of
from ._identify.probe_controls import in_dtype_of_tasks
from ._identify.profile_paths import NULLS
from ._identify.settings import IdentifyConfig
from ._shared.draws import draw_tasks, project
from ._shared.recipe import RUNS, ModelRecipe, Recipe, TaskRecipe
from ._shared.rows import Rows
from ._shared.runs import Run, blank, family, load
from ._solverbench.disguise import perturbed, rotated, superposed
from ._solverbench.known import CHANGED, FEWER, KERNELS, exact, kernels_of
from ._solverbench.models import Answers, answers_and_hats, answers_of
from ._solverbench.open_set import functions_of, weights_of
from ._solverbench.score import OUTCOMES, Share, outcome
from ._solverbench.settings import LINEAR, PROCESS, QUICK, BenchConfig, Setting, largest, setting
from ._solverbench.verdicts import (
    IDENTIFIED,
    NEAR,
    NONE,
    TIED,
    Verdict,
    identify_answers,
    row_of,
    verdict_of,
)
from ._study import Cell, Study, environment, run

__all__ = [
    "CHANGED",
    "FEWER",
    "IDENTIFIED",
    "KERNELS",
    "LINEAR",
    "NEAR",
    "NONE",
    "NULLS",
    "OUTCOMES",
    "PROCESS",
    "QUICK",
    "RUNS",
    "TIED",
    "Answers",
    "BenchConfig",
    "Cell",
    "ExplorerConfig",
    "IdentifyConfig",
    "ModelRecipe",
    "Protocol",
    "Recipe",
    "Rows",
    "Run",
    "Setting",
    "Share",
    "Study",
    "TaskRecipe",
    "Verdict",
    "answers_and_hats",
    "answers_of",
    "blank",
    "draw_tasks",
    "environment",
    "exact",
    "explore",
    "family",
    "functions_of",
    "identify_answers",
    "in_dtype_of_tasks",
    "kernels_of",
    "known_of",
    "largest",
    "load",
    "outcome",
    "perturbed",
    "project",
    "rotated",
    "row_of",
    "run",
    "setting",
    "superposed",
    "targets_of",
    "verdict_of",
    "weights_of",
]
