"""The runner of studies: finished cells are kept, and only those that are missing are measured."""

import dataclasses

import numpy as np
import pytest

from benchmarks import records
from icl_krr.experiments import Study, run
from icl_krr.experiments._study import KEPT


@pytest.fixture
def squares():
    """A study of squares that says which cells it measured; x = 5 is an interruption."""

    class Squares(list):
        def __call__(self, xs, source="", **settings):
            def measure(cell):
                self.append(cell["x"])
                if cell["x"] == 5:
                    raise KeyboardInterrupt
                return [{"square": cell["x"] ** 2, "nan": float("nan")}]

            return Study("squares", settings, {"x": xs}, measure, lambda cell: source)

    return Squares()


def test_only_missing_cells_are_measured(tmp_path, squares):
    with pytest.raises(KeyboardInterrupt):
        run(squares((1, 2, 5)), tmp_path)
    first = run(squares((1, 2)), tmp_path)
    assert squares == [1, 2, 5]
    assert first.before == 2
    more = run(squares((3, 2)), tmp_path)
    assert squares == [1, 2, 5, 3]
    assert more.before == 1
    assert [result[0]["square"] for _, result in more.cells] == [9, 4]
    assert [one["cell"]["x"] for one in more.records] == [1, 2, 3]
    assert np.isnan(more.cells[0][1][0]["nan"])


def test_cut_lines_and_cells_of_another_source_are_measured_again(tmp_path, squares):
    run(squares((1, 2)), tmp_path)
    path = tmp_path / KEPT
    whole = path.read_bytes()
    for cut in (len(whole) - 3, len(whole) - 20):
        path.write_bytes(whole[:cut])
        run(squares((1, 2)), tmp_path)
        assert squares.pop() == 2
        assert path.read_bytes() == whole
    for source, measured in (("another", [1, 2, 2]), ("", [1, 2, 2])):
        results = run(squares((2,), source), tmp_path)
        assert squares == measured
        assert [one["source"] for one in results.records] == ["", source]
        assert results.cells[0][1][0]["square"] == 4


@pytest.mark.parametrize("line", ["{}", "[", "1", '{"cell": {"x": 2}, "result": 3}', 9999 * "["])
def test_lines_that_hold_no_cell_are_passed_over(tmp_path, squares, line):
    run(squares((1,)), tmp_path)
    with (tmp_path / KEPT).open("a") as file:
        file.write(f"{line}\n")
    assert run(squares((1, 2)), tmp_path).before == 1
    assert squares == [1, 2]


def test_axes_may_be_generators_and_numbers_those_of_numpy():
    measure = lambda cell: np.float32(cell["x"])  # noqa: E731
    numbers = Study("numbers", {}, {"x": (np.int64(i) for i in range(3))}, measure)
    assert [run(numbers).cells[i][1] for i in range(3)] == [0, 1, 2]
    with pytest.raises(TypeError, match="what JSON can hold, got <object"):
        run(Study("objects", {}, {"x": (1,)}, lambda cell: object()))


def test_other_settings_and_other_files_are_refused(tmp_path, squares):
    run(squares((1,), width=3), tmp_path)
    before = (tmp_path / KEPT).read_bytes()
    with pytest.raises(ValueError, match="width: stored 3, given 4; choose another folder"):
        run(squares((1,), width=4), tmp_path)
    assert (tmp_path / KEPT).read_bytes() == before
    for content in (b"", b"a,b\n1,2\n", b"\x00\x01", b"[]"):
        (tmp_path / KEPT).write_bytes(content)
        with pytest.raises(ValueError, match="must hold the study 'squares', got None"):
            run(squares((1,)), tmp_path)
        assert (tmp_path / KEPT).read_bytes() == content
    for head in ('"squares"', '"squares", "settings": null', '"cubes", "settings": {}'):
        (tmp_path / KEPT).write_text(f'{{"study": {head}}}\n')
        with pytest.raises(ValueError, match="must hold the study 'squares'"):
            run(squares((1,)), tmp_path)
    (tmp_path / KEPT).write_text('{"study": "squares", "settings": {"icl_krr": "0"}}\n')
    with pytest.raises(ValueError, match=r"icl_krr: stored 0, given \d"):
        run(squares((1,)), tmp_path)
    (tmp_path / KEPT).rename(tmp_path / "mine.csv")
    with pytest.raises(ValueError, match="must be empty or hold a squares with its"):
        run(dataclasses.replace(squares((1,)), files=("mine.csv",)), tmp_path)
    assert squares == [1]


def test_the_progress_counts_finished_cells(tmp_path, squares):
    run(squares((1,)), tmp_path)
    said = []
    run(squares((1, 2)), tmp_path, lambda *words: said.append(words))
    assert said == [("", 1, 2), ("x 2", 2, 2)]


def test_a_benchmark_tries_failed_cells_again_and_leaves_out_those_without_a_result(tmp_path):
    failing = [2]

    def measure(cell):
        if cell["x"] in failing:
            raise ValueError(cell["x"])
        return cell["x"] if cell["x"] > 1 else None

    study = Study("numbers", {}, {"x": (1, 2, 3)}, measure)
    assert records.finished(study, tmp_path) == [({"x": 3}, 3)]
    failing.clear()
    assert records.finished(study, tmp_path) == [({"x": 2}, 2), ({"x": 3}, 3)]
