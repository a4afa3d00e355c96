"""Tasks: supports to learn from, queries to predict; drawn at random or read from a table."""

from .batches import map_tasks
from .families import DecisionTree, ReLUNetwork, Rows, Sinusoids
from .linear_system import System, system
from .samplers import GaussianProcess, LinearRegression, Sampler, sample
from .tables import Table, diabetes, read_table, split
from .task import Task

__all__ = [
    "DecisionTree",
    "GaussianProcess",
    "LinearRegression",
    "ReLUNetwork",
    "Rows",
    "Sampler",
    "Sinusoids",
    "System",
    "Table",
    "Task",
    "diabetes",
    "map_tasks",
    "read_table",
    "sample",
    "split",
    "system",
]
