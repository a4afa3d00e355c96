"""The table of features: what bandwidth each has, and how important it is."""

from __future__ import annotations

from ..experiments.answer import Answer
from ..experiments.shared.rows import Rows
from ..text_tables import Table, number
from . import output


def features_of(found: Answer, names: tuple[str, ...]) -> Rows:
    """Bandwidth and importance of each feature, the most important first; [] for one bandwidth."""
    each = found.result.facts["each"]
    if each is None:
        return []
    name = str(found.result.kernel.bandwidth)
    columns = zip(names, each["bandwidths"], each["importance"], strict=True)
    rows = [{"feature": n, name: width, "importance": share} for n, width, share in columns]
    return sorted(rows, key=lambda row: -row["importance"])


def print_features(features: Rows, found: Answer) -> None:
    if not features:
        return
    header = _, name, importance = [*features[0]]
    lines = [[row["feature"], number(row[name], 3), number(row[importance], 3)] for row in features]
    facts = found.result.facts["each"]
    errors = facts["leave_one_out"]
    console = output.wide()
    console.print(Table("features", header, [lines]))
    console.print(
        f"{name}: of this feature, in standard deviations of the feature. A feature with a large "
        f"{name} has little influence; none above {facts['most']:g} is tried\n"
        "importance: share of this feature in the squares of the slopes of exact KRR at the "
        "supports\n"
        f"leave-one-out RMSE with one {name}: {errors['one']:.3g}, with one for each feature: "
        f"{errors['each']:.3g}\n"
    )
