"""Panels of curves and heatmaps, as the notebooks show them."""

import numpy as np
import pytest
from matplotlib.colors import LogNorm

from icl_krr.plots import GREEN, curves_figure, heatmaps_figure


def drawn(axis):
    return {line.get_label(): line for line in axis.lines}


def test_names_that_agree_up_to_the_comma_share_a_colour_and_not_the_dashes():
    panels = {
        "step": {"fused, float64": [1, 2], "fused, float32": [1, 3], "textbook": [2, 3]},
        "blocks": {"textbook": ([0, 5], [2, 3])},
    }
    left, right = map(drawn, curves_figure(panels, "gap", "").axes)
    double, single, other = left.values()
    assert double.get_color() == single.get_color() != other.get_color()
    assert double.get_linestyle() != single.get_linestyle()
    assert right["textbook"].get_color() == other.get_color()
    np.testing.assert_array_equal(right["textbook"].get_xydata(), [[0, 2], [5, 3]])


def test_lines_have_the_looks_of_all_figures_and_no_curve_has_their_colours():
    curves = {f"model {i}": [1.0, 2.0] for i in range(5)}
    lines = {"exact": 0.5, "0.1": 0.1, "zero": 1.0}
    figure = curves_figure({"step": curves}, "error", "", lines=lines)
    artists = drawn(figure.axes[0])
    assert artists["exact"].get_color() == GREEN
    assert artists["zero"].get_linestyle() == ":" != artists["0.1"].get_linestyle()
    colours = {artists[name].get_color() for name in curves}
    assert len(colours) == 5
    assert not {GREEN, "black"} & colours
    many = {f"model {i}, {part}": [1.0, 2.0] for i in range(12) for part in "ab"}
    (axis,) = curves_figure({"step": many}, "error", "").axes
    assert len({(line.get_color(), line.get_linestyle()) for line in axis.lines}) == 24
    (legend,) = figure.legends  # below the axes, where it hides nothing
    assert not figure.axes[0].get_legend()
    assert len(legend.get_texts()) == 8


@pytest.mark.parametrize(
    ("log", "x", "whole"), [("", [0, 1], 1), ("y", [0, 0.5], 0), ("x", [1, 2], 0)]
)
def test_whole_numbers_have_whole_ticks(log, x, whole):
    (axis,) = curves_figure({"x": {"f": (x, [1.0, 2.0])}}, "y", "", log=log).axes
    scales = ["log" if name in log else "linear" for name in "xy"]
    assert [axis.get_xscale(), axis.get_yscale()] == scales
    ticks = axis.get_xticks()
    assert np.all(ticks == np.round(ticks)) == whole or log


def test_dots_are_marks_without_a_line_and_must_be_known():
    curves = {"f": [1.0, 2.0], "supports": ([0.5], [1.0])}
    (axis,) = curves_figure({"x": curves}, "y", "", dots=("supports",)).axes
    assert drawn(axis)["supports"].get_linestyle() == "None"
    with pytest.raises(ValueError, match=r"dots must be names of curves \(f, supports\), got 'g'"):
        curves_figure({"x": curves}, "y", "", dots=("g",))


def test_panels_show_all_values():
    axes = curves_figure({"a": {"f": [1.0, 2.0]}, "b": {"f": [0.1, 9.0]}}, "y", "", log="y").axes
    for low, high in (axis.get_ylim() for axis in axes):
        assert low < 0.1 < 9 < high
    (axis,) = curves_figure({"a": {"f": [1.0, 2.0]}}, "y", "", limits=(0.5, 4.0)).axes
    assert axis.get_ylim() == (0.5, 4)


def test_a_curve_has_its_band():
    band = (range(3), [1.0, 2, 3], [0.5, 1, 2], [2.0, 3, 4])
    (axis,) = curves_figure({"x": {"f": band}}, "y", "").axes
    (area,) = axis.collections
    assert area.get_datalim(axis.transData).intervaly.tolist() == [0.5, 4]


def test_colours_of_heatmaps_are_logarithmic_or_symmetric_and_leave_zero_white():
    matrices = {"size": [[0.0, 1.0], [10.0, 100.0]], "value": [[0.0, 2.0], [-1.0, 1.0]]}
    figure = heatmaps_figure(matrices, "step", "slot", "", names=("a", "b"))
    size, value = (axis.images[0] for axis in figure.axes[:2])
    assert isinstance(size.norm, LogNorm)
    assert (size.norm.vmin, size.norm.vmax) == (1, 100)
    assert (value.norm.vmin, value.norm.vmax) == (-2, 2)
    for image in (size, value):
        assert np.ma.getmaskarray(image.get_array()).tolist() == [[True, False], [False, False]]
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["a", "b"]
