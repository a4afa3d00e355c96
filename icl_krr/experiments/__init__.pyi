from ._claims.tables import claims_to_markdown
from ._claims.verify import choose_claims, claims, verify_all
from ._curves import curves
from ._explorer import ExplorerConfig, explore
from ._scaling import (
    AXIS_SETTINGS,
    FEWEST_VALUES,
    TASK_SETTINGS,
    along_axis,
    axis_value,
    by_architecture,
    equivalents,
    family_of,
    fit_slope,
    format_steps,
    read_models,
    task_settings,
)
from ._shared.draws import draw_tasks, project
from ._shared.recipe import RUNS, ModelRecipe, Recipe, TaskRecipe
from ._shared.rows import Rows
from ._shared.runs import Run, blank, build_model, family, load
from ._shared.writing import (
    Lines,
    format_number,
    from_csv,
    parse_json,
    plain,
    replace,
    to_csv,
    to_json,
    to_markdown,
)
from ._study import Cell, Study, environment, run

__all__ = [
    "AXIS_SETTINGS",
    "FEWEST_VALUES",
    "RUNS",
    "TASK_SETTINGS",
    "Cell",
    "ExplorerConfig",
    "Lines",
    "ModelRecipe",
    "Recipe",
    "Rows",
    "Run",
    "Study",
    "TaskRecipe",
    "along_axis",
    "axis_value",
    "blank",
    "build_model",
    "by_architecture",
    "choose_claims",
    "claims",
    "claims_to_markdown",
    "curves",
    "draw_tasks",
    "environment",
    "equivalents",
    "explore",
    "family",
    "family_of",
    "fit_slope",
    "format_number",
    "format_steps",
    "from_csv",
    "load",
    "parse_json",
    "plain",
    "project",
    "read_models",
    "replace",
    "run",
    "task_settings",
    "to_csv",
    "to_json",
    "to_markdown",
    "verify_all",
]
