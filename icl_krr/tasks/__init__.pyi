from ._batches import batch, map_tasks
from ._division import split
from ._families import DecisionTree, ReLUNetwork, Rows, Sinusoids
from ._gaussian_process import GaussianProcess, LinearRegression
from ._linear_system import System, system
from ._samplers import Sampler, sample, shifted
from ._tables import Queries, Table, diabetes, read_queries, read_table
from ._task import Task

__all__ = [
    "DecisionTree",
    "GaussianProcess",
    "LinearRegression",
    "Queries",
    "ReLUNetwork",
    "Rows",
    "Sampler",
    "Sinusoids",
    "System",
    "Table",
    "Task",
    "batch",
    "diabetes",
    "map_tasks",
    "read_queries",
    "read_table",
    "sample",
    "shifted",
    "split",
    "system",
]
