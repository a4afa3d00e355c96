from ._ablate.config import AblateConfig
from ._claims.tables import claims_to_markdown
from ._claims.verify import choose_claims, claims, verify_all
from ._curves import curves
from ._explorer import ExplorerConfig, draw_task, explore
from ._hyperparameters import FitConfig
from ._scaling import (
    TASK_SETTINGS,
    equivalents,
    family_of,
    format_steps,
    last_stages,
    read_models,
    task_settings,
)
from ._shared.draws import draw_tasks, project
from ._shared.recipe import (
    RUNS,
    ModelRecipe,
    Recipe,
    TaskRecipe,
    holds_run,
    run_names,
    training_minutes,
)
from ._shared.retrained import (
    LEARNING_RATES,
    RETRAINING_STUDIES,
    RetrainingStudy,
    random_models,
    stack_models,
    weights_file,
)
from ._shared.rows import Plot, Rows
from ._shared.runs import Run, blank, family, load
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
from ._snapshot import take_snapshot
from ._study import Cell, Study, environment, run
from ._sweep.axis import along
from ._sweep.config import SweepConfig
from ._sweep.trial import Trial

__all__ = [
    "LEARNING_RATES",
    "RETRAINING_STUDIES",
    "RUNS",
    "TASK_SETTINGS",
    "AblateConfig",
    "Cell",
    "ExplorerConfig",
    "FitConfig",
    "Lines",
    "ModelRecipe",
    "Plot",
    "Recipe",
    "RetrainingStudy",
    "Rows",
    "Run",
    "Study",
    "SweepConfig",
    "TaskRecipe",
    "Trial",
    "along",
    "blank",
    "choose_claims",
    "claims",
    "claims_to_markdown",
    "curves",
    "draw_task",
    "draw_tasks",
    "environment",
    "equivalents",
    "explore",
    "family",
    "family_of",
    "format_number",
    "format_steps",
    "from_csv",
    "holds_run",
    "last_stages",
    "load",
    "parse_json",
    "plain",
    "project",
    "random_models",
    "read_models",
    "replace",
    "run",
    "run_names",
    "stack_models",
    "take_snapshot",
    "task_settings",
    "to_csv",
    "to_json",
    "to_markdown",
    "training_minutes",
    "verify_all",
    "weights_file",
]
