"""`icl-krr predict`: predictions for the rows of one's own table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ..._core.text_tables import TextTable, format_number
from ...catalogue._choices import KernelName
from .._options import Construction
from .._output import Outcome, working

if TYPE_CHECKING:
    from ...experiments._shared.rows import Rows
    from ...tabular._answer import Answer
    from ...tasks._division import Division

MAX_ROWS = 10
"""The number of predictions that the command prints."""


@dataclass(frozen=True)
class Predict(Construction):
    """Predict a column of TABLE.csv with a constructed transformer. The rows of --queries are
    predicted from the rows of the table. Without --queries, random rows of the table are predicted
    from its other rows. Every column except the target is a feature. The command prints
    predictions with 95 % intervals, and the distance of the transformer to exact KRR at every
    depth. It computes in float64 where float32 has too few digits."""

    table: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="TABLE.csv")]] = tyro.MISSING
    """Comma-separated file with a header line."""
    target: Annotated[str, tyro.conf.arg(metavar="COLUMN")] = tyro.MISSING
    """Column to predict."""
    queries: Annotated[Path | None, tyro.conf.arg(metavar="QUERIES.csv")] = None
    """Comma-separated file with the rows to predict. It must have all feature columns of the
    table, and can have the target column.
    If None, the rows of the table that are not supports."""
    encode: bool = False
    """Encode columns of text: each different text becomes a column that is 0 or 1 (one-hot)."""
    missing: Literal["drop", "median"] | None = None
    """What to do about cells without a value: empty, NA, N/A, NaN, null or ?, in any case. "drop"
    leaves out their rows, and predicts nothing for such rows of --queries. "median" gives a number
    the median of its column in the table, and a text 0 in all of its columns (see --encode); rows
    of the table without a target are left out. The column "filled" of the predictions names what
    was filled in a row, and std covers the values that it has in the supports. A typing error is
    never missing.
    If None, such cells are refused."""
    supports: int | None = None
    """Number of rows of the table used as supports, drawn at random.
    If None, three quarters of the rows, but at most 512; all rows if --queries is given, but at
    most 1024."""
    kernel: KernelName | None = None
    """Kernel of the regression; the solver must support the kernel.
    If None, the kernel with the least leave-one-out error on the supports, of linear, exponential
    and gaussian."""
    bandwidths: Literal["one", "each"] = "one"
    """Bandwidths of the kernel. "one" is the same for all features. "each" chooses a bandwidth for
    each feature, and the ridge, by gradient of the marginal likelihood of the supports, or of 1024
    random supports if there are more. Then the command prints the bandwidth and the importance of
    each feature."""
    amplitude: float | None = None
    """Amplitude s > 0 of the prior in squared units of the target: the covariance is s k(x, z), and
    the variance of the noise is s times the ridge. It scales the intervals, not the predictions.
    If None, the amplitude with the largest likelihood of the supports."""
    steps: int | None = None
    """Number of solver steps that the transformer runs, >= 1.
    If None, as many as the predictions need to converge, at most 256 in
    float32 and 1024 in float64."""
    out: Path | None = None
    """Folder for predictions.csv, results.csv, meta.json, depth.png, depth.svg and, with
    --bandwidths each, features.csv.
    If None, no files are written."""


def run(settings: Predict) -> Outcome:
    import jax

    from ..._core import checks
    from ...tabular._answer import answer, calibration_of, errors, predictions
    from .._depth_tables import depth_config, outcome
    from .._warnings import answer_warnings

    config = depth_config(settings, centred=True)
    if settings.amplitude is not None:
        checks.positive_scalar("amplitude", settings.amplitude)
    name = settings.table.name
    with working(settings) as show:
        with jax.enable_x64(True):
            division, names, warnings = read_task(settings)
        result = answer(division, config, settings.amplitude, lambda what: show(f"{name}: {what}"))
    each = predictions(result.division, result.result, result.process)
    rmse = errors(result.division, result.result)
    calibration = calibration_of(result.division, each)
    features = feature_rows(result, names)
    rows = [row._asdict() for row in each]
    unknown = {"y": division.task.y_query is None, "filled": division.filled is None}
    rows = [{name: row[name] for name in row if not unknown.get(name)} for row in rows]
    cells = [{name: csv_cell(value) for name, value in row.items()} for row in rows]
    depths = outcome({name: result.result}, settings.seed)
    files = {"predictions.csv": cells, **depths.files}
    files |= {"features.csv": features} if features else {}
    parts = feature_summary(features, result)
    return Outcome(
        {"predictions": rows, **depths.record},
        [*summary(settings, rows, rmse, result, calibration), *parts, *depths.parts],
        files,
        {
            **depths.facts,
            "target": settings.target,
            "rmse": rmse,
            "process": result.process.facts,
            "float64_because": result.float64_reason,
            "calibration": calibration,
            "features": features,
        },
        [*warnings, *answer_warnings(result)],
    )


def csv_cell(value: float | str) -> float | str:
    """The value, or an empty cell for NaN."""
    return "" if isinstance(value, float) and math.isnan(value) else value


def read_task(settings: Predict) -> tuple[Division, tuple[str, ...], list[str]]:
    """The task, the names of its features, and warnings about its predictions."""
    from ..._core.messages import one_line
    from ...tasks import read_queries, read_table
    from ...tasks._division import default_num_supports, divide
    from .._warnings import missing_cell_warnings, task_warnings

    table = read_table(settings.table, settings.target, settings.encode, settings.missing)
    if len(table) < 2:
        raise ValueError(f"{settings.table} must hold at least 2 rows, got {len(table)}")
    queries = None
    if settings.queries is not None:
        queries = read_queries(settings.queries, table, settings.missing)
    supports = settings.supports
    if supports is None:
        supports = default_num_supports(table, queries)
    if supports < 2:
        raise ValueError(f"supports must be >= 2, got {supports}; one row does not show a spread")
    division = divide(table, supports, settings.seed, queries)
    warnings = missing_cell_warnings(settings.table, table)
    warnings += missing_cell_warnings(settings.queries, queries)
    warnings += task_warnings(division, table)
    if queries and queries.unseen:
        warnings.append(
            f"{settings.queries} has text that the table does not have, whose features are all 0: "
            f"{one_line(', '.join(queries.unseen))}"
        )
    return division, table.features, warnings


def summary(
    settings: Predict, rows: Rows, rmse: dict[str, float], answer: Answer, cover: dict[str, float]
) -> tuple[TextTable, str]:
    count = f"first {MAX_ROWS} of {len(rows)}" if len(rows) > MAX_ROWS else f"all {len(rows)}"
    lines = [
        [format_number(v, 5) if isinstance(v, float) else str(v) for v in row.values()]
        for row in rows[:MAX_ROWS]
    ]
    title = f"predictions of {settings.target} ({count} queries)"
    source, facts = settings.queries or settings.table, answer.result.facts
    of = "; this is the interval of the regression, not of the transformer"
    words = (
        f"row: number of the row in {source.name}\n"
        "exact: exact KRR. std: standard deviation of a new y under the Gaussian process of the "
        f"same kernel and ridge, from {answer.process.source}. low, high: 95 % interval of a new "
        f"y, exact -+ 1.96 std{of if facts['status'] is None else ''}\n"
    )
    if "filled" in rows[0]:
        words += (
            "filled: columns that were missing, or have a text that the table does not have; std "
            "then covers the values that they have in supports\n"
        )
    if answer.process.ok:
        how = "given" if settings.amplitude else "estimated from the supports by maximum likelihood"
        amplitude = format_number(float(answer.process.amplitude), 4)
        words += (
            f"amplitude of the prior: {amplitude}, {how}: the covariance is {amplitude} k(x, z), "
            f"and the variance of the noise {format_number(float(answer.process.noise), 4)}\n"
        )
    if rmse:
        each = ", ".join(f"{name} {format_number(value, 4)}" for name, value in rmse.items())
        words += coverage_summary(rows, cover)
        words += f"RMSE in units of {settings.target}: {each}\n"
    if settings.bandwidths == "one" and facts["p"] > 1 and answer.result.kernel.bandwidth:
        words += "--bandwidths each lets the kernel ignore features, and shows which ones matter\n"
    if settings.out is None and len(rows) > MAX_ROWS:
        words += "--out FOLDER writes all predictions to predictions.csv\n"
    return TextTable(title, list(rows[0]), [lines]), words


def coverage_summary(rows: Rows, calibration: dict[str, float]) -> str:
    if not calibration:
        return ""
    inside = sum(row["low"] <= row["y"] <= row["high"] for row in rows)
    low, high = (format_number(100 * calibration[end], 3) for end in ("low", "high"))
    narrow = calibration["fraction"] < calibration["level"]
    verdict = f"not 95 %: the intervals are too {'narrow' if narrow else 'wide'}"
    if calibration["calibrated"]:
        verdict = "not distinguishable from 95 %"
    return (
        f"{inside} of {len(rows)} intervals contain y: a coverage of {low} to {high} % (95 % "
        f"confidence, independent rows), {verdict}\n"
        f"log likelihood of a y: {format_number(calibration['log_likelihood'], 4)}; with the mean "
        f"and the deviation of the supports: {format_number(calibration['constant'], 4)}\n"
    )


def feature_rows(answer: Answer, names: tuple[str, ...]) -> Rows:
    """Bandwidth and importance of each feature, the most important first; [] for one bandwidth."""
    each = answer.result.facts["each"]
    if each is None:
        return []
    name = str(answer.result.kernel.bandwidth)
    columns = zip(names, each["bandwidths"], each["importance"], strict=True)
    rows = [{"feature": n, name: width, "importance": share} for n, width, share in columns]
    return sorted(rows, key=lambda row: -row["importance"])


def feature_summary(features: Rows, answer: Answer) -> list[TextTable | str]:
    if not features:
        return []
    header = _, name, importance = [*features[0]]
    lines = [
        [row["feature"], format_number(row[name], 3), format_number(row[importance], 3)]
        for row in features
    ]
    facts = answer.result.facts["each"]
    errors = facts["leave_one_out"]
    return [
        TextTable("features", header, [lines]),
        f"{name}: of this feature, in standard deviations of the feature. A feature with a large "
        f"{name} has little influence; none above {facts['most']:g} is tried\n"
        "importance: share of this feature in the squares of the slopes of exact KRR at the "
        "supports\n"
        f"leave-one-out RMSE with one {name}: {errors['one']:.3g}, with one for each feature: "
        f"{errors['each']:.3g}\n",
    ]
