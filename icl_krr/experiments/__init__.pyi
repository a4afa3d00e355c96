from ._explorer import ExplorerConfig, explore
from ._shared.draws import draw_tasks, project
from ._shared.recipe import RUNS, ModelRecipe, Recipe, TaskRecipe
from ._shared.rows import Rows
from ._shared.runs import Run, blank, family, load
from ._study import Cell, Study, environment, run

__all__ = [
    "RUNS",
    "Cell",
    "ExplorerConfig",
    "ModelRecipe",
    "Recipe",
    "Rows",
    "Run",
    "Study",
    "TaskRecipe",
    "blank",
    "draw_tasks",
    "environment",
    "explore",
    "family",
    "load",
    "project",
    "run",
]
