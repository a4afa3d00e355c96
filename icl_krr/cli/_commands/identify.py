"""`icl-krr identify`: find the solver that a model runs; tables, heatmaps and filters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..._core.files import to_markdown
from ..._core.text_tables import TextTable, as_text
from ...catalogue import candidate
from ...experiments.identify._settings import IdentifyConfig, IdentifyOptions
from .._options import ONE_DEVICE, Command, OnDevices, checked, refuse_unused
from .._output import Outcome, working
from .._user_solver import register_file

if TYPE_CHECKING:
    from ...experiments.identify._trained_model import Positions


@dataclass(frozen=True)
class Source(Command):
    """What is identified."""

    model: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="MODEL")]]
    """A trained model of the package (such as gp-encoder), the folder of an icl-krr train run, or a
    NumPy file MODEL.npz."""
    tasks_of: str | None = None
    """Do not identify, but write tasks to MODEL.npz, as arrays x, y and x_query. The tasks have the
    family of a trained model, a run's folder or a recipe.json, which you name here. To identify
    your model, add its predictions as the array layer_predictions [b, layers + 1, q] and their
    derivatives in y as hats [b, layers + 1, q, n]. The derivatives at the outputs y_other, as
    other_hats, are optional. Instead, you can add its hidden states at the queries as streams
    [b, layers + 1, q, d] and their derivatives in y as stream_jacobians [b, layers + 1, q, d, n].
    The streams and the derivatives of an untrained model of the same shape, as control_streams and
    control_jacobians, are optional."""

    @property
    def is_file(self) -> bool:
        return self.model.endswith(".npz")


@dataclass(frozen=True)
class Identify(IdentifyOptions, Source):
    """Identify the solver that MODEL runs. The command fits every candidate solver to the
    predictions of the model after each layer, then compares model and candidates on new tasks of
    the same family. A file MODEL.npz holds the predictions or the hidden states of a model of any
    library. First, --tasks-of writes to this file the tasks on which the model must predict. All
    candidates take about ten minutes for one seed of gp-encoder. Standard error says the time that
    is left."""

    protocol: Literal["distances", "error-profile"] = "distances"
    """What is compared. "distances": the predictions of layers and steps, and their derivatives.
    "error-profile", as in published work: only their errors, the mean over tasks, which name a
    solver even if the model runs none (claim C48)."""
    positions: tuple[int, ...] = ()
    """Numbers of supports after which the model is identified, besides all supports of its tasks.
    At a support, a decoder predicts as it would for a query after the earlier supports."""
    seeds: int = 2
    """Number of seeds, each with its own tasks and probes. The verdict holds for all of them. The
    first seed is --seed."""
    seed: int = 0
    """Seed of every random choice."""
    solver: Annotated[str | None, tyro.conf.arg(metavar="FILE.py:NAME")] = None
    """A candidate of your own, such as my.py:nesterov: a function with the mark icl_krr.solver
    whose keywords besides ridge, step_size and spectrum have defaults. These three are fitted.
    If None, no candidate besides the others."""
    long: bool = False
    """Print all tables, which are also in the file tables.txt: errors of the layers, distances of
    all candidates, controls, and nested models."""
    json: bool = False
    """Print JSON instead of tables."""
    out: Path | None = None
    """Folder for the tables (JSON, CSV, Markdown) and the figures (PNG, SVG).
    If None, icl-krr-identify-MODEL."""
    devices: OnDevices = ONE_DEVICE

    float64 = True

    @property
    def folder(self) -> Path:
        if self.tasks_of is not None:
            return Path(self.model).parent
        return self.out or Path(f"icl-krr-identify-{Path(self.model).stem}")

    def refuse_options_without_effect(self) -> None:
        of_run = ["probe_tasks", "shift", "positions", "seeds", "protocol"]
        if self.tasks_of is not None:
            if not self.is_file:
                raise ValueError(f"MODEL must be a file .npz with --tasks-of, got {self.model!r}")
            unused = [*of_run, "kernels", "candidates", "steps", "solver", "out", "json", "long"]
            refuse_unused(self, unused, "with --tasks-of")
        elif self.is_file:
            refuse_unused(self, [*of_run, "tasks", "num_queries"], "for a file")
        if self.protocol == "error-profile":
            unused = ["candidates", "positions", "shift", "long"]
            refuse_unused(self, unused, "with --protocol error-profile")


def run(settings: Identify) -> Outcome:
    from ..._core import checks

    checks.count("seeds", settings.seeds)
    if settings.solver is not None:
        own = candidate(register_file(settings.solver)).name
        if settings.candidates:
            settings = replace(settings, candidates=(*settings.candidates, own))
    if settings.tasks_of is not None:
        return _tasks_for(Path(settings.model), settings)
    if settings.is_file:
        return _identify_file(settings)
    seeds = range(settings.first_seed, settings.last_seed + 1)
    configs = [checked(settings, IdentifyConfig, seed=seed) for seed in seeds]
    of_run = _identify_profile if settings.protocol == "error-profile" else _identify_trained
    return of_run(settings, configs)


def _tasks_for(path: Path, settings: Identify) -> Outcome:
    from .._identification import tasks_file

    if path.exists():
        raise ValueError(f"{path} must be a new file, but it exists; remove it or use another name")
    sizes = {"num_queries": settings.num_queries, "count": 2 * settings.tasks}
    with working(settings):
        content = tasks_file(str(settings.tasks_of), **sizes, seed=settings.seed)
    return Outcome({}, files={path.name: content})


def _identify_profile(settings: Identify, configs: list[IdentifyConfig]) -> Outcome:
    from ...experiments._shared.runs import load
    from ...experiments.identify import _error_profile as profiles, _profile_tables as tables
    from ...plots import curves_figure

    trained = load(settings.model)
    with working(settings) as show:
        findings = []
        for one in configs:
            start = f"seed {one.seed}, "
            findings += [profiles.examine(trained, one, lambda words, at=start: show(at + words))]
    first = findings[0]
    seeds = [
        {
            "seed": config.seed,
            "model": tables.record(one.profile),
            "untrained": one.untrained and tables.record(one.untrained),
        }
        for config, one in zip(configs, findings, strict=True)
    ]
    figure = partial(
        curves_figure,
        tables.panels(first, "error"),
        "mean squared error at the queries",
        f"{settings.model}, seed {settings.seed}, float64",
        log="y",
        lines=first.losses,
        dots=("model",),
    )
    pages = [tables.verdict_table(first), *map(tables.reading_table, first.profile.readings)]
    return Outcome(
        {"seeds": seeds},
        tables.printed(settings.model, findings),
        {
            "identify.json": {"seeds": seeds},
            "layers.csv": tables.layer_rows(first),
            "identify.md": "\n".join(map(to_markdown, pages)),
            "profile": figure,
        },
        {"kernel": repr(first.kernel), "ridge": first.ridge, "errors": first.losses},
    )


def _identify_trained(settings: Identify, configs: list[IdentifyConfig]) -> Outcome:
    from ...experiments._shared.runs import load
    from ...experiments.identify import _trained_model as trained_model
    from ...experiments.identify._probe_controls import examine_streams
    from ...plots import filter_figure
    from ...probes import agreement
    from .. import _identification as tables

    trained = load(settings.model)
    with working(settings) as show:

        def results(config: IdentifyConfig, positions: tuple[int, ...]) -> Positions:
            start = f"{settings.model}, seed {config.seed}: "
            return trained_model.examine_positions(
                trained, config, positions, lambda words: show(start + words)
            )

        streams = examine_streams(  # the longest part, whose time the first candidate tells
            trained, configs[0], lambda words: show(f"{settings.model}, streams: {words}")
        )
        positions = results(configs[0], settings.positions)
        *_, findings = positions.values()
        others = [next(iter(results(config, ()).values())).identification for config in configs[1:]]
    identifications = [findings.identification, *others]
    together = agreement(identifications)
    title = f"{settings.model}, seed {settings.seed}, float64"
    record = tables.findings_record(findings)
    record["together"] = together._asdict()
    pairs = zip(configs, identifications, strict=True)
    record["seeds"] = [{"seed": c.seed, **tables.identification_record(one)} for c, one in pairs]
    blocks = tables.printed_findings(settings.model, findings)
    verdict = f"with {len(configs)} seeds: {together.verdict}" if others else ""
    last = findings.layers[-1]
    words = [
        *tables.summary(settings.model, findings.identification, verdict),
        f"mean squared error: the model {last['error']:.3g}, exact regression "
        f"{last['exact']:.3g}, the prediction 0 {last['zero']:.3g}",
    ]
    files: dict[str, Any] = {
        "identify.json": record,
        "layers.csv": findings.layers,
        "filter.csv": trained_model.filter_rows(findings),
        "identify.md": trained_model.markdown(findings),
        **tables.distance_files(findings.identification, title),
        "filter": partial(filter_figure, findings, title),
    }
    if settings.positions:
        record["positions"] = []
        for count, one in positions.items():
            facts = {"num_supports": count, "kernel": repr(one.kernel), "ridge": one.ridge}
            record["positions"].append(facts | tables.findings_record(one))
            words.append(f"after {count} supports: {one.identification.statement}")
        table = trained_model.verdict_table(positions)
        files["positions.md"] = to_markdown(table)
        heading = "error, verdict, nearest candidate and nearest baseline after some supports"
        blocks.append(TextTable.of(f"{settings.model}: {heading}", table))
    if streams is not None:
        record["streams"] = tables.identification_record(streams)
        files |= tables.distance_files(streams, title, "streams-")
        files["streams.md"] = tables.distance_pages(streams)
        blocks += tables.printed(streams)
        words += tables.summary("through the streams", streams)
    else:
        needs = "at least 2 layers, 4 tasks, as many steps as layers, one output, and no masks"
        words.append(f"The streams were not read: this needs {needs}.")
    facts = {"kernel": repr(findings.kernel), "ridge": findings.ridge}
    return _answer_first(settings, words, Outcome(record, blocks, files, facts))


def _answer_first(settings: Identify, words: list[str], outcome: Outcome) -> Outcome:
    """Print words in lines of 100 columns, and only with --long the tables, which are in a file."""
    words.append(f"All tables are in {settings.folder / 'tables.txt'}; --long prints them.")
    answer = "\n".join(fill(line, 100, subsequent_indent="  ") for line in words)
    files = {**outcome.files, "tables.txt": as_text(*outcome.parts, width=160)}
    tables = outcome.parts if settings.long else []
    return outcome._replace(parts=[answer, *tables], files=files)


def _identify_file(settings: Identify) -> Outcome:
    import jax

    from ...probes import identify_arrays
    from .. import _identification as tables

    options = {name: getattr(settings, name) for name in ("kernels", "steps", "seed")}
    options["candidates"] = settings.candidates or None
    with jax.enable_x64(True):
        tasks, kinds = tables.read_file(Path(settings.model))
    title = f"{settings.model}, seed {settings.seed}, float64"
    record: dict[str, Any] = {}
    files: dict[str, Any] = {"identify.json": record}
    blocks, pages, words = [], [], []
    with working(settings) as show:
        for kind, arrays in kinds.items():
            start = f"{settings.model}, {kind}: "
            options["progress"] = lambda words, start=start: show(start + words)
            result = identify_arrays(tasks, **arrays, **options)
            part = tables.identification_record(result)
            record |= {kind: part} if pages else part  # the first result stands at the top
            files |= tables.distance_files(result, title, f"{kind}-" if pages else "")
            pages.append(tables.distance_pages(result))
            blocks += tables.printed(result)
            words += tables.summary(kind if len(kinds) > 1 else settings.model, result)
    files["identify.md"] = "\n".join(pages)
    return _answer_first(settings, words, Outcome(record, blocks, files))
