"""Cells without a value: all are named at once, and one option leaves out or fills their rows."""

import re

import numpy as np
import pytest

from icl_krr.cli._commands.predict import Predict, read_task
from icl_krr.tasks import read_queries, read_table, split

ROWS = ["1,2,x,3", ",?,y,4", "2,NA,,5", "12,nan,x,", "3,4,y,6", "5,6,x,2", "7,1,y,1"]


def write(path, *rows, header="a,b,city,y"):
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "t.csv", *ROWS)


def test_all_cells_are_named_at_once_by_line(path):
    with pytest.raises(ValueError, match="expected a finite number") as refusal:
        read_table(path, "y", encode=True)
    said = str(refusal.value)
    assert said.startswith(f"{path}: line 3, column 'a': expected a finite number, got ''; and 5 ")
    places = re.findall(r"line (\d), column '(\w+)'", said)
    assert places == [*(("3", "a"), ("3", "b"), ("4", "b"), ("4", "city"), ("5", "b"), ("5", "y"))]
    assert "--missing drop or --missing median" in said
    assert "\n" not in said


def test_at_most_ten_are_shown(tmp_path):
    path = write(tmp_path / "t.csv", *["1,,x,3"] * 30, *["1,2,x,3"] * 40)
    with pytest.raises(ValueError, match=r"and 29 more: .*line 11, column 'b', ''; \.\.\.; ") as e:
        read_table(path, "y", encode=True)
    assert str(e.value).count("line ") == 10


@pytest.mark.parametrize("missing", ["drop", "median"])
def test_a_typing_error_is_not_missing(path, missing):
    write(path, *ROWS, '"12,5x",1,x,2', "1,inf,x,2")
    with pytest.raises(ValueError, match=r"got '12,5x'; and 1 more: line 10, .*'inf'") as refusal:
        read_table(path, "y", encode=True, missing=missing)
    assert "--missing" not in str(refusal.value)


def test_rows_with_missing_cells_are_left_out(path):
    table = read_table(path, "y", encode=True, missing="drop")
    assert table.dropped == (2, 3, 4)
    assert table.filled is None
    assert table.features == ("a", "b", "city=x", "city=y")
    np.testing.assert_array_equal(table.x[:, :2], [[1, 2], [3, 4], [5, 6], [7, 1]])
    np.testing.assert_array_equal(table.y, [3, 6, 2, 1])


def test_missing_numbers_get_the_median_and_missing_texts_no_feature(path):
    table = read_table(path, "y", encode=True, missing="median")
    assert (table.dropped, table.filled.sum()) == ((4,), 4)  # the row without a target
    np.testing.assert_array_equal(table.x[:, 0], [1, 3, 2, 3, 5, 7])
    np.testing.assert_array_equal(table.x[:, 1], [2, 3, 3, 4, 6, 1])
    np.testing.assert_array_equal(table.x[2, 2:], [0, 0])


def test_queries_get_the_median_of_the_table(path, tmp_path):
    queries = write(tmp_path / "q.csv", "100,,x", "NULL,100,N/A", header="a,b,city")
    table = read_table(path, "y", encode=True, missing="median")
    filled = read_queries(queries, table, missing="median")
    np.testing.assert_array_equal(filled.x, [[100, 3, 1, 0], [3, 100, 0, 0]])
    assert (filled.unseen, filled.dropped) == ((), ())
    np.testing.assert_array_equal(filled.filled, [[False, True, False], [True, False, True]])
    with pytest.raises(ValueError, match="line 2, column 'b'"):
        read_queries(queries, table)


def test_targets_of_queries_may_all_be_missing(path):
    table = read_table(path, "y", encode=True, missing="drop")
    write(path, "1,2,x,", "3,4,y,NA")
    assert read_queries(path, table).y is None
    write(path, "1,2,x,", "3,4,y,5")
    assert read_queries(path, table, missing="drop").y is None
    with pytest.raises(ValueError, match="line 2, column 'y': expected a finite number, got ''"):
        read_queries(path, table)


@pytest.mark.parametrize("missing", ["drop", "median"])
def test_the_command_counts_rows_as_the_file_has_them(path, tmp_path, missing):
    rows = ["1,2,x,3", ",2,y,4", "3,4,y,", *(f"{i},{i * i % 7},x,{i}" for i in range(9))]
    options = {"target": "y", "encode": True, "missing": missing}
    settings = Predict(table=write(path, *rows), supports=6, **options)
    division, names, warnings = read_task(settings)
    assert names == ("a", "b", "city=x", "city=y")[: 4 if missing == "median" else 3]
    left_out = {"drop": (2, 3), "median": (3,)}[missing]
    assert f"{path}: rows left out for missing cells: {len(left_out)} (" in warnings[0]
    filled = any(f"{path}: cells filled: 1 (" in words for words in warnings)
    assert filled == (missing == "median")
    table = read_table(path, "y", encode=True, missing=missing)
    numbers = np.setdiff1d(np.arange(1, 13), left_out)
    order = np.random.default_rng(0).permutation(len(table))
    np.testing.assert_array_equal(division.rows, numbers[order[6:]])
    assert not set(division.rows) & set(left_out)
    np.testing.assert_array_equal(split(table, 6).y, division.task.y)
    queries = write(tmp_path / "q.csv", ",2,y", "1,2,x", header="a,b,city")
    division, _, warnings = read_task(Predict(table=path, queries=queries, **options))
    assert division.rows.tolist() == ([2] if missing == "drop" else [1, 2])
    assert any(str(queries) in words for words in warnings)


def test_no_row_or_no_number_may_be_left(tmp_path):
    path = write(tmp_path / "t.csv", "1,,x,3", "1,,x,4", ",2,x,5")
    with pytest.raises(ValueError, match="got none of 3; most are missing in the column 'b'"):
        read_table(path, "y", encode=True, missing="drop")
    write(path, "1,,x,3", "1,,x,4", "2,NA,x,5")
    with pytest.raises(ValueError, match="column 'b': expected a number in some row, got none"):
        read_table(path, "y", encode=True, missing="median")
    with pytest.raises(ValueError, match="missing must be one of 'drop', 'median', got 'mean'"):
        read_table(path, "y", missing="mean")


@pytest.mark.parametrize(
    "dates",
    [
        ("2024-05-31", "2024-06-01", "2024-6-2"),
        ("2024-05-31T10:00:00", "2024-05-31 10:00", "2024/06/01"),
        ("31/5/24", "1/12/2023", "3/1/24", ""),
        ("31.5.2024", "1.12.2023", "unknown"),
        ("31 May 2024", "1-Dec-23", "2.1.2024"),
    ],
)
@pytest.mark.parametrize("encode", [False, True])
def test_dates_are_told_how_to_become_numbers(tmp_path, dates, encode):
    path = write(tmp_path / "t.csv", *(f"{i},{d}" for i, d in enumerate(dates)), header="y,day")
    with pytest.raises(ValueError, match="got dates in 'day', such as") as refusal:
        read_table(path, "y", encode=encode)
    remedy = "t['day'] = (pd.to_datetime(t['day']) - pd.Timestamp('1970-01-01')).dt.days"
    assert remedy in str(refusal.value)
    with pytest.raises(ValueError, match="got dates in 'day'"):
        read_table(path, "day")


def test_all_faults_of_a_table_are_in_one_refusal(tmp_path):
    rows = ["2024-05-31,x,1,1", "2024-06-01,y,,2", ",z,12x,3", "2024-06-02,w,4,1e300"]
    path = write(tmp_path / "t.csv", *rows, header="day,name,a,y")
    for encode, text in ((False, "got text in 'name'"), (True, "column 'name': expected few diff")):
        with pytest.raises(ValueError) as refusal:
            read_table(path, "y", encode=encode)
        dates, texts, cells = re.split(r"\(\d\) ", str(refusal.value))[1:]
        assert "got dates in 'day'" in dates
        assert text in texts
        places = re.findall(r"line (\d), column '(\w+)'", cells)
        assert places == [("3", "a"), ("4", "day"), ("4", "a")]
    rows = ["1e299,-1e300,1", *(f"{i},{i % 7},{i}" for i in range(18)), "1e300,1,1e300"]
    huge = r"-?1e\+300 is so large that the other"  # next to it, any prediction has the error 0
    words = rf"\(1\) line 21, column 'a': {huge}.*\(2\) line 2, .*\(3\) line 21, column 'y': {huge}"
    with pytest.raises(ValueError, match=words):
        read_table(write(path, *rows, header="a,b,y"), "y")
    write(path, "1,2", "1", "3,4", "5,6,7", header="a,y")
    with pytest.raises(ValueError, match=r"line 3: .* got 1; also wrong: line 5"):
        read_table(path, "y")


def test_few_dates_can_be_encoded_as_texts(tmp_path):
    rows = [f"{i},2024-0{1 + i % 2}-01" for i in range(8)]
    table = read_table(write(tmp_path / "t.csv", *rows, header="y,month"), "y", encode=True)
    assert table.features == ("month=2024-01-01", "month=2024-02-01")
