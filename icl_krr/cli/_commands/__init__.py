"""The commands, one file each: a class of settings, such as `Demo`, and its work.

The work is a function `run(settings)` that returns an `Outcome`; the driver writes and prints it.
JAX is imported inside of the functions, so that `--help` is fast.
"""

from . import ablate, demo, fit, identify, predict, report, solverbench, sweep, train, verify

COMMANDS = {
    "demo": (demo.Demo, demo.run),
    "predict": (predict.Predict, predict.run),
    "fit": (fit.Fit, fit.run),
    "sweep": (sweep.Sweep, sweep.run),
    "train": (train.Train, train.run),
    "identify": (identify.Identify, identify.run),
    "ablate": (ablate.Ablate, ablate.run),
    "report": (report.Report, report.run),
    "verify": (verify.Verify, verify.run),
    "solverbench": (solverbench.Solverbench, solverbench.run),
}
"""{command in the order of the help: the class of its settings, and its work}."""
