from .explorer import ExplorerConfig, explore
from .identify.error_profile import Protocol, known_of, targets_of
from .identify.probe_controls import in_dtype_of_tasks
from .identify.profile_paths import NULLS
from .identify.settings import IdentifyConfig
from .shared.draws import draw_tasks, project
from .shared.recipe import RUNS, ModelRecipe, Recipe, TaskRecipe
from .shared.rows import Rows
from .shared.runs import Run, blank, family, load
from .solverbench.disguise import perturbed, rotated, superposed
from .solverbench.known import CHANGED, FEWER, KERNELS, exact, kernels_of
from .solverbench.models import Answers, answers_and_hats, answers_of
from .solverbench.open_set import functions_of, weights_of
from .solverbench.score import OUTCOMES, Share, outcome
from .solverbench.settings import LINEAR, PROCESS, QUICK, BenchConfig, Setting, largest, setting
from .solverbench.verdicts import (
    IDENTIFIED,
    NEAR,
    NONE,
    TIED,
    Verdict,
    identify_answers,
    row_of,
    verdict_of,
)
from .study import Cell, Study, environment, run

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
