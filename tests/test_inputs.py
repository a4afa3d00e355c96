"""Files that other people made or damaged, and commands that end early: one sentence each."""

import errno
import io
import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from icl_krr import cli
from icl_krr.cli import _output
from icl_krr.cli._identification import read_file
from icl_krr.cli._page_parts import Part, make_page
from icl_krr.experiments.solverbench._folder import FORMAT, digest
from icl_krr.report import Section


def refused(capsys, argv):
    """The sentence with which a command refuses its input."""
    capsys.readouterr()
    assert cli.main([str(word) for word in argv]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("icl-krr: error: ")
    return lines[0].removeprefix("icl-krr: error: ")


def npz(**arrays):
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def arrays_of_file(b=4, n=4, p=2, q=3):
    """One step of gradient descent on the linear kernel."""
    rng = np.random.default_rng(0)
    x, y, x_query = (rng.normal(size=(b, *shape)) for shape in ((n, p), (n,), (q, p)))
    slopes = 0.1 * np.einsum("bqp,bnp->bqn", x_query, x)
    hats = np.stack([0 * slopes, slopes], axis=1)
    predictions = np.einsum("blqn,bn->blq", hats, y)
    return {"x": x, "y": y, "x_query": x_query, "layer_predictions": predictions, "hats": hats}


GOOD = arrays_of_file()
TASKS = {name: GOOD[name] for name in ("x", "y", "x_query")}
STREAMS = {
    "streams": GOOD["layer_predictions"][..., None],
    "stream_jacobians": GOOD["hats"][..., None, :],
}
ANSWERS = {"answers": GOOD["layer_predictions"], "hats": GOOD["hats"]}  # as in SolverBench


def with_text():
    content = io.BytesIO(npz(**{name: GOOD[name] for name in GOOD if name != "x"}))
    with zipfile.ZipFile(content, "a") as file:
        file.writestr("x", "1 2 3")
    return content.getvalue()


def one_array():
    content = io.BytesIO()
    np.save(content, GOOD["x"])
    return content.getvalue()


UNREADABLE = "must be a NumPy file as numpy.savez writes it"
ARRAYS = {
    f"{UNREADABLE}, but cannot be read (it is not a NumPy file)": b"",
    f"{UNREADABLE}, but": npz(**GOOD)[:600],
    "must be a NumPy file": npz(**GOOD | {"x": np.array([None])}),
    "(it holds one array without a name)": one_array(),
    "x must be an array of real numbers, got dtype |S5": with_text(),
    "y, x_query, layer_predictions, hats is missing; add the predictions": npz(x=GOOD["x"]),
    "stream_jacobians is missing; add": npz(**TASKS, streams=GOOD["layer_predictions"]),
    "control_streams is missing; add": npz(**TASKS, **STREAMS, control_jacobians=GOOD["hats"]),
    "file.npz: x must be [n, p], got shape []": npz(**GOOD | {"x": 1.0}),
    "file.npz: y must be [n] or [n, r]": npz(**GOOD | {"x": GOOD["x"][:, :2]}),
    "y must be <= 1e150 in size": npz(**GOOD | {"y": 1e300 * GOOD["y"]}),
    "hats must be an array of": npz(**GOOD | {"hats": GOOD["hats"].astype(bool)}),
    "hats must be finite, got nan": npz(**GOOD | {"hats": np.nan * GOOD["hats"]}),
    "mask must be an array of booleans": npz(**GOOD, mask=np.ones((4, 4))),
    "y must differ from 0 at an unmasked": npz(**GOOD, mask=np.zeros((4, 4), bool)),
}


@pytest.mark.parametrize("message", ARRAYS)
def test_a_file_of_predictions_is_refused_by_one_sentence(tmp_path, capsys, message):
    path = tmp_path / "file.npz"
    path.write_bytes(ARRAYS[message])
    assert message in refused(capsys, ["identify", path, "--out", tmp_path / "out"])


@pytest.mark.parametrize("kind", ["<i8", ">f8", ">i2", "<f4", "<f2"])
def test_other_byte_orders_and_integers_simply_work(tmp_path, x64, kind):
    path = tmp_path / "file.npz"
    path.write_bytes(npz(**{name: (9 * value).astype(kind) for name, value in GOOD.items()}))
    tasks, arrays = read_file(path)
    for name in ("layer_predictions", "hats"):
        predictions = arrays["layer_predictions"][name]
        assert predictions.dtype == float
        np.testing.assert_array_equal(predictions, (9 * GOOD[name]).astype(kind))
    np.testing.assert_array_equal(tasks.x, (9 * GOOD["x"]).astype(kind))


@pytest.fixture
def bench(tmp_path):
    """The folder `models` of a SolverBench with one model."""
    folder = tmp_path / "models"
    files = {"tasks/linear.npz": ("x", "y", "x_query"), "m000/answers.npz": ("answers", "hats")}
    for name, names in files.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(npz(**{name: (GOOD | ANSWERS)[name] for name in names}))
    return write_manifest(folder)


def write_manifest(folder, **changes):
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.npz")}
    sums = {name: digest(path.read_bytes()) for name, path in files.items()}
    rows = [{"model": "m000", "tasks": "linear"}]
    record = {"format": FORMAT, "config": {}, "dtype": "float64", "models": rows, "sha256": sums}
    (folder / "manifest.json").write_text(json.dumps(record | changes))
    return folder


def row(**entries):
    return {"models": [{"model": "m000", "tasks": "linear", **entries}]}


DAMAGED = {
    "models[0]: Object missing required field tasks, got {": {"models": [{"model": "m000"}]},
    "manifest.json: models[0].model must be str, got 0": row(model=0),
    "config: field must be one of 'seed', 'tasks', ": {"config": {"task": 1}},
    "config: tasks must be >= 2, got 1": {"config": {"tasks": 1}},
    "must have format 1, got 9": {"format": 9},
    "models must be at least one, each once, got m000": {"models": 2 * row()["models"]},
    "models[0].layers must be that of its answers, got 1000000000": row(layers=10**9),
    "steps must be one number >= 0 for layer 0 and each layer of its": row(steps=(-1, 2)),
    "must have the checksum of tasks/linear.npz, got none": {"sha256": {}},
    "must be as its manifest says": {
        "sha256": dict.fromkeys(("tasks/linear.npz", "m000/answers.npz"), digest(b""))
    },
    "names must stay in its folder, got '/etc'": row(model="/etc"),
    "folder, got '../sums'": {"sha256": {"../sums": digest(b"")}},
    "m000/answers.npz must be a NumPy file": {"m000/answers.npz": b""},
    "m000/answers.npz must hold the arrays answers, hats": {"m000/answers.npz": npz(a=1)},
    "m000: hats must be [b, layers + ": {"m000/answers.npz": npz(**ANSWERS | {"hats": GOOD["y"]})},
    "linear.npz: y must be [n]": {"tasks/linear.npz": npz(**GOOD | {"y": GOOD["y"][:, :1]})},
}
"""What is written into files, or into the manifest."""


@pytest.mark.parametrize("message", DAMAGED)
def test_a_damaged_solverbench_is_refused_by_one_sentence(bench, tmp_path, capsys, message):
    changes = dict(DAMAGED[message])
    for name in [name for name in changes if name.endswith(".npz")]:
        (bench / name).write_bytes(changes.pop(name))
    write_manifest(bench, **changes)
    command = ["solverbench", "identify", "--models", bench, "--out", tmp_path / "out"]
    assert message in refused(capsys, command)


@pytest.mark.parametrize(
    ("labels", "table", "message"),
    [
        ([], "", "labels.json must be object, got []"),
        ({"models": {"m000": {"variant": "exact"}}}, "", "m000: Object missing required field a"),
        ({}, "\xff", "table.csv must be comma-separated UTF-8 text"),
        ({}, "", "table.csv must have the columns model, status, names, got no model"),
    ],
)
def test_damaged_labels_and_verdicts(tmp_path, capsys, labels, table, message):
    header = {"format": FORMAT, "config": {}, "dtype": "float64", "models": {}, "sha256": {}}
    record = header | labels if isinstance(labels, dict) else labels
    (tmp_path / "labels.json").write_text(json.dumps(record))
    (tmp_path / "table.csv").write_bytes(table.encode("latin-1"))
    command = ["solverbench", "score", tmp_path / "table.csv", "--labels", tmp_path]
    assert message in refused(capsys, [*command, "--out", tmp_path / "out"])


FULL = OSError(errno.ENOSPC, "No space left")


@pytest.mark.parametrize(
    ("error", "message"), [(KeyboardInterrupt(), "^$"), (FULL, r"No space left: .*/first\.json")]
)
def test_a_write_that_ends_early_leaves_the_old_file(tmp_path, monkeypatch, error, message):
    """The error of a write, which names no file, has the path."""
    old, write = tmp_path / "first.json", Path.write_bytes
    old.write_text("old")

    def begun(path, content):
        write(path, content[:2])
        raise error

    monkeypatch.setattr(Path, "write_bytes", begun)
    with pytest.raises((KeyboardInterrupt, OSError), match=message):
        _output.save(tmp_path, {"first.json": b"new words"})
    assert [path.name for path in tmp_path.iterdir()] == ["first.json"]
    assert old.read_text() == "old"


def test_a_report_in_progress_says_so(tmp_path):
    path, pages = tmp_path / "report.html", []

    def make(show):
        pages.append(path.read_text())
        return Section("claims", "Claims", (), ())

    make_page(tmp_path, [Part("claims", 1, make)], lambda *_: None)
    said = r"In progress at 2.{18,}: claims\. Load this page again to see the parts that are ready"
    assert re.search(said, pages[0])
    assert "If icl-krr report does not run any more, run the command again." in pages[0]
    assert "In progress" not in path.read_text()
