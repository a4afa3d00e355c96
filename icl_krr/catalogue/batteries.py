"""Catalogue rows for batteries: changes of a family of tasks, one respect each."""

from .rows import Battery

BATTERIES = {
    row.name: row
    for row in (
        Battery("fewer_supports", supports=0.5),
        Battery("more_supports", supports=2),
        Battery("less_noise", noise=0.1),
        Battery("more_noise", noise=10),
        Battery("conditioning", condition=10),
        Battery("duplicates", repeated=True),
        Battery("smaller_x", x=0.5),
        Battery("larger_x", x=2),
        Battery("smaller_y", y=0.25),
        Battery("larger_y", y=4),
    )
}
