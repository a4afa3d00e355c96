"""Bad files, folders and command lines, each as a command that should be refused.

`benchmarks.bad_inputs` runs and counts them.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from icl_krr.cli.commands import COMMANDS, settings_of
from icl_krr.experiments.shared.recipe import LONG, RUNS, Recipe
from icl_krr.fields import hints


class Command(NamedTuple):
    """A command with one bad input: what is bad, and the words of the command line."""

    what: str
    value: str
    argv: list[str]


Write = Callable[[str, Any], str]
"""Function of a name and a text, bytes or a record; it writes a file and returns its path."""


def writer(folder: Path) -> Write:
    def write(name: str, content: Any) -> str:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, (str, bytes)):
            content = json.dumps(content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


ROWS = [f"{i % 5},{i * i % 7},{i % 3}" for i in range(12)]
TABLE = "a,b,y\n" + "\n".join(ROWS) + "\n"
TABLES: dict[str, str | bytes] = {
    "empty": "",
    "only lines": "\n\n\n",
    "only a header": "a,b,y\n",
    "no target": "a,b,c\n1,2,3\n",
    "only the target": "y\n1\n2\n",
    "one row": "a,y\n1,2\n",
    "a name twice": "a,a,y\n1,2,3\n",
    "a column without a name": ",a,y\n1,2,3\n",
    "too few cells": "a,b,y\n1,2,3\n4,5\n",
    "too many cells": "a,b,y\n1,2,3\n4,5,6,7\n",
    "semicolons": TABLE.replace(",", ";"),
    "tabs": TABLE.replace(",", "\t"),
    "bars": TABLE.replace(",", "|"),
    "spaces": TABLE.replace(",", " "),
    "UTF-16": TABLE.encode("utf-16"),
    "Latin-1": TABLE.replace("a,", "é,").encode("latin-1"),
    "an image": b"\x89PNG\r\n\x1a\n\x00\xff\xfe",
    "a NumPy file": b"PK\x03\x04\x14\x00\x00\x00\x00\x00\x00\x00!\x00\xff",
    "zeros": b"\0" * 200,
    "JSON": '{"a": [1, 2], "y": [3, 4]}',
    "HTML": "<!doctype html><html><body>404</body></html>",
    "an open quote": 'a,b,y\n"1,2,3\n' + TABLE,
    "a huge cell": f"a,y\n1,{'9' * 200_000}\n",
    "a constant that hides all": "a,y\n" + "1e300,1\n" + "".join(f"{i},{i}\n" for i in range(9)),
    "text in a column": "a,y\n" + "".join(f"w{i},{i}\n" for i in range(9)),
    "dates": "a,y\n" + "".join(f"2024-01-0{i},{i}\n" for i in range(1, 9)),
    "dates in days": "a,y\n" + "".join(f"{i}/1/24,{i}\n" for i in range(1, 9)),
    "dates in words": "a,y\n" + "".join(f"{i} May 2024,{i}\n" for i in range(1, 9)),
    "dates to predict": "a,y\n" + "".join(f"{i},2024-01-0{i}\n" for i in range(1, 9)),
    "words to predict": "a,y\n" + "".join(f"{i},w{i}\n" for i in range(1, 9)),
    "a column of nothing": "a,b,y\n" + "".join(f"{i},,{i}\n" for i in range(9)),
}
CELLS = (
    *("", "NA", "N/A", "nan", "NULL", "?", "-", "--", "none", "inf", "-inf", "1e400", "1_000"),
    *("0x10", "red", "12,5", "12,5x", "$5", "5%", "5 kg", "1 000", "1e", "e5", "+-1", "1.2.3"),
    *("∞", "½", "−1", "1;2", "true", "12:30", "2024-01-01", "1/2", "(1)", "'1'", "1j", "\0"),
)


def of_tables(write: Write) -> Iterator[Command]:
    predict = lambda path: ["predict", path, "--target", "y"]  # noqa: E731
    good = write("good.csv", TABLE)
    for what, content in TABLES.items():
        path = write("table.csv", content)
        yield Command("table", what, predict(path))
        if what != "no target" and "to predict" not in what:
            yield Command("queries", what, [*predict(good), "--queries", path])
        yield Command("data of fit", what, ["fit", path, "--target", "y"])
        family = ["--task.family", "table", "--task.table", path, "--task.target", "y"]
        yield Command("table of train", what, ["train", *family])
        if what in ("a column of nothing", "only a header"):
            yield Command("table, missing", what, [*predict(path), "--missing", "drop"])
    for cell in CELLS:
        for j, column in enumerate(("a", "b", "y")):
            rows = [row.split(",") for row in ROWS]
            rows[4][j] = f'"{cell}"'
            path = write("cell.csv", "a,b,y\n" + "\n".join(map(",".join, rows)) + "\n")
            yield Command(f"cell of {column}", repr(cell), predict(path))
            yield Command(
                f"cell of {column}, queries", repr(cell), [*predict(good), "--queries", path]
            )


def npz(**arrays: Any) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def arrays() -> dict[str, np.ndarray]:
    """Tasks and answers of one gradient step, as `icl-krr identify FILE.npz` reads them."""
    rng = np.random.default_rng(0)
    x, y, x_query = (rng.normal(size=shape) for shape in ((4, 4, 2), (4, 4), (4, 3, 2)))
    slopes = 0.1 * np.einsum("bqp,bnp->bqn", x_query, x)
    hats = np.stack([0 * slopes, slopes], axis=1)
    answers = np.einsum("blqn,bn->blq", hats, y)
    optional = {"other_hats": hats, "mask": np.ones((4, 4), bool)}
    return {"x": x, "y": y, "x_query": x_query, "answers": answers, "hats": hats} | optional


def of_streams(good: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same answers as streams with one channel, and as those of a control."""
    values, slopes = (good[name][:, [0, 1, 1]] for name in ("answers", "hats"))  # two layers
    values, slopes = values[..., None], slopes[..., None, :]
    known = {"streams": values, "stream_jacobians": slopes}
    return known | {"control_streams": values, "control_jacobians": slopes}


def bad_arrays(good: np.ndarray) -> dict[str, Any]:
    number = 1.0 * good
    return {
        "texts": good.astype(str),
        "bytes": good.astype("S"),
        "complex": good.astype(complex),
        "objects": good.astype(object),
        "records": np.zeros(good.shape, [("a", float)]),
        "dates": np.zeros(good.shape, "datetime64[D]"),
        "durations": np.zeros(good.shape, "timedelta64[s]"),
        "void": np.zeros(good.shape, "V8"),
        "scalar": np.float64(1),
        "rank + 1": number[None],
        "rank - 1": number[0],
        "shorter": number[:, :-1],
        "fewer tasks": number[:3],
        "no tasks": number[:0],
        "empty": np.zeros((0,) * good.ndim),
        **({} if good.dtype == bool else {"nan": number * math.nan, "booleans": good > 0}),
        **({"numbers": number, "all False": good & False} if good.dtype == bool else {}),
    }


def of_arrays(write: Write) -> Iterator[Command]:
    good = arrays()
    identify = lambda content: ["identify", write("file.npz", content)]  # noqa: E731
    tasks, streams = {name: good[name] for name in ("x", "y", "x_query")}, of_streams(good)
    for names, whole in (
        (("x", "y", "x_query", "answers", "hats"), good),
        (tuple(streams), tasks | streams),
    ):
        for name in names:
            rest = {key: value for key, value in whole.items() if key != name}
            yield Command(name, "missing", identify(npz(**rest)))
        for name in whole if whole is good else names:
            for what, bad in bad_arrays(whole[name]).items():
                yield Command(name, what, identify(npz(**whole | {name: bad})))
    yield Command("y", "zeros", identify(npz(**good | {"y": 0 * good["y"]})))
    yield Command("x", "zeros", identify(npz(**good | {"x": 0 * good["x"]})))
    content = npz(**good)
    for at in range(0, len(content), len(content) // 24):
        yield Command("file", f"cut after {at} bytes", identify(content[:at]))
    one = io.BytesIO()
    np.save(one, good["x"])
    for what, other in {
        "one array": one.getvalue(),
        "text": b"x, y, hats",
        "zip of nothing": b"PK\x05\x06" + bytes(18),
        "damaged header": content.replace(b"descr", b"desrc"),
        "a shape that no memory holds": content.replace(b"(4, 4, 2)", b"(4**99, )"),
        "a pickle": b"\x80\x04K\x01.",
    }.items():
        yield Command("file", what, identify(other))


JSON = {
    "empty": "",
    "half": '{"task": {"noise":',
    "a list": "[]",
    "a text": '"task"',
    "null": "null",
    "deep": "[" * 10**5,
    "a list of parts": '{"task": [1]}',
    "a text of a part": '{"task": "gaussian"}',
    "an unknown part": '{"tasks": {}}',
    "no UTF-8": b"\xff\xfe{}",
}
TEXTS = {"text": "abc", "list": [3], "object": {}, "nan": math.nan, "infinite": math.inf, "-1": -1}


def bad_values(name: str, hint: Any) -> dict[str, Any]:
    """Values of JSON that a field of a recipe must not have."""
    kinds = {hint, *get_args(hint)}
    if int in kinds:
        large = 2**40 if name in LONG else 10**9
        return TEXTS | {"2.5": 2.5, "true": True, "'3'": "3", "huge": large, "1e400": 10**400}
    if float in kinds:
        return TEXTS | {"true": True, "1e31": 1e31}
    return {"3": 3, "list": ["abc"], "object": {}, "1.5": 1.5} | (
        {"'abc'": "abc", "a folder": "../../../etc/passwd"}
        if name not in ("table", "target")
        else {}
    )


def of_recipes(write: Write) -> Iterator[Command]:
    train = lambda content: ["train", write("recipe.json", content)]  # noqa: E731
    for what, content in JSON.items():
        yield Command("recipe", what, train(content))
    for part, cls in hints(Recipe).items():
        for name, hint in hints(cls).items():
            for what, value in bad_values(name, hint).items():
                yield Command(f"{part}.{name}", what, train({part: {name: value}}))
    run = Path(write("run/recipe.json", "")).parent
    shutil.copytree(RUNS / "linear", run, dirs_exist_ok=True)
    content, rng = (run / "recipe.json").read_bytes(), np.random.default_rng(0)
    for bit in rng.choice(8 * len(content), 60, replace=False):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        write("run/recipe.json", bytes(flipped))
        yield Command("recipe beside weights", f"bit {bit} flipped", ["train", str(run)])
    write("run/recipe.json", {"task": {"family": "linear"}})
    yield Command("recipe beside weights", "not sealed", ["train", str(run)])
    write("run/recipe.json", content)
    weights = (run / "model.msgpack").read_bytes()
    for bit in rng.choice(8 * len(weights), 20, replace=False):
        flipped = bytearray(weights)
        flipped[bit // 8] ^= 1 << bit % 8
        write("run/model.msgpack", bytes(flipped))
        yield Command("weights", f"bit {bit} flipped", ["identify", str(run)])
    for at in range(0, len(weights), len(weights) // 10):
        write("run/model.msgpack", weights[:at])
        yield Command("weights", f"cut after {at} bytes", ["identify", str(run)])


def of_folders(write: Write) -> Iterator[Command]:
    good = arrays()
    files = {
        "models/tasks/linear.npz": npz(**{name: good[name] for name in ("x", "y", "x_query")}),
        "models/m000/answers.npz": npz(answers=good["answers"], hats=good["hats"]),
    }
    sums = {name.removeprefix("models/"): sha256(data).hexdigest() for name, data in files.items()}
    rows = [{"model": "m000", "tasks": "linear"}]
    known = {"format": 1, "config": {}, "dtype": "float64", "sha256": sums}
    for name, content in files.items():
        write(name, content)
    folder = Path(write("models/manifest.json", "")).parent
    identify = ["solverbench", "identify", "--models", str(folder)]
    label = {"variant": "exact", "about": "", "solver": "", "names": [], "tasks": "linear"}
    score = ["solverbench", "score", write("table.csv", "model,status,names\nm000,none,\n")]
    score += ["--labels", str(folder)]
    for name, command, models in (("manifest", identify, rows), ("labels", score, {"m000": label})):
        record = known | {"models": models}
        for what, content in JSON.items():
            write(f"models/{name}.json", content)
            yield Command(name, what, command)
        for key in record:
            values = {"null": None, "text": "abc", "3": 3, "list": ["a"], "of lists": {"m000": []}}
            for what, value in values.items():
                if key in ("config", "dtype", "format") and type(value) is type(record[key]):
                    continue
                write(f"models/{name}.json", record | {key: value})
                yield Command(f"{name}: {key}", what, command)
            write(f"models/{name}.json", {k: v for k, v in record.items() if k != key})
            yield Command(f"{name}: {key}", "missing", command)
        for key in rows[0] if name == "manifest" else label:
            for what, value in {"null": None, "3": 3, "object": {}, "../outside": "../x"}.items():
                if name == "labels" and what == "../outside" and key != "names":
                    continue
                one = (rows[0] if name == "manifest" else label) | {key: value}
                changed = [one] if name == "manifest" else {"m000": one}
                write(f"models/{name}.json", record | {"models": changed})
                yield Command(f"{name}: {key} of a model", what, command)
        write(f"models/{name}.json", record)
    for name, content in files.items():
        for what, other in {"empty": b"", "other names": npz(a=1), "text": b"abc"}.items():
            write(name, other)
            changed = sums | {name.removeprefix("models/"): sha256(other).hexdigest()}
            write("models/manifest.json", known | {"models": rows, "sha256": changed})
            yield Command(name, what, identify)
        write(name, content)
    for what, table in {
        "empty": "",
        "other columns": "a,b\n1,2\n",
        "unknown model": "model,status,names\nm9,none,\n",
        "twice": "model,status,names\nm000,none,\nm000,none,\n",
        "unknown status": "model,status,names\nm000,perhaps,\n",
        "unknown name": "model,status,names\nm000,identified,magic\n",
        "no name": "model,status,names\nm000,identified,\n",
        "no line": "model,status,names\n",
        "no UTF-8": b"\xff",
    }.items():
        write("table.csv", table)
        yield Command("verdicts", what, score)
    for name in ("claims.json", "identify.json", "meta.json"):
        for what, content in JSON.items():
            place = Path(write(f"{name}-{what}/{name}", content)).parent
            write(f"{place.name}/results.csv", "a,b\n1,2\n")
            yield Command(f"{name} of a report", what, ["report", str(place)])


GOOD = {
    "predict": ["good.csv", "--target", "y"],
    "fit": ["gp-encoder"],
    "sweep": ["depth"],
    "train": ["linear"],
    "identify": ["gp-encoder"],
    "ablate": ["conjugate-gradient"],
    "solverbench": ["write", "--quick"],
    "verify": ["C1", "--quick"],
    "bench": ["forward", "--quick"],
}
"""The positional arguments of a command."""


def bad_words(hint: Any) -> tuple[str, ...]:
    """Words that an option must not have."""
    kinds = {hint, *get_args(hint)}
    if int in kinds:
        return ("abc", "2.5", "", "nan", "-1", "1e3", "9" * 30)
    if float in kinds:
        return ("abc", "", "nan", "-1", "inf", "1,5")
    if bool in kinds or Path in kinds or str in kinds:
        return ()
    return ("abc", "")


def of_command_lines(write: Write) -> Iterator[Command]:
    write("good.csv", TABLE)
    for words in ([], ["nosuch"], ["predic"], ["--nosuch"], ["-1"], [""], ["demo", "--seed"]):
        yield Command("command", " ".join(words), words)
    for name in COMMANDS:
        good = [name, *GOOD.get(name, [])]
        yield Command(name, "--nosuch 1", [*good, "--nosuch", "1"])
        yield Command(name, "extra words", [*good, "extra", "words"])
        if name in ("predict", "fit", "sweep", "identify", "ablate", "solverbench"):
            yield Command(name, "no arguments", [name])
        for field in dataclasses.fields(settings_of(name)):
            hint = hints(settings_of(name))[field.name]
            option = f"--{field.name.replace('_', '-')}"
            if dataclasses.is_dataclass(hint) or field.name in ("argv", "devices"):
                continue
            for word in bad_words(hint):
                if f"{option}" not in good:
                    yield Command(f"{name} {option}", repr(word), [*good, option, word])
        for mesh in ("abc", "batch", "batch=x", "batch=0", "nosuch=2", "batch=99"):
            if name in ("train", "identify", "fit", "sweep", "ablate"):
                yield Command(f"{name} --mesh", mesh, [*good, "--mesh", mesh])
    for path in ("nowhere.csv", os.curdir, "/dev/null/x"):
        yield Command("predict", path, ["predict", path, "--target", "y"])
        yield Command("identify", path, ["identify", path])
        yield Command("train", path, ["train", path])
        yield Command("report", path, ["report", path])
        yield Command("predict --queries", path, ["predict", *GOOD["predict"], "--queries", path])
    yield Command("predict --out", "a file", ["predict", *GOOD["predict"], "--out", "good.csv/out"])


PARTS: dict[str, Callable[[Write], Iterator[Command]]] = {
    "tables (CSV)": of_tables,
    "answers (npz)": of_arrays,
    "recipes and weights": of_recipes,
    "folders": of_folders,
    "command lines": of_command_lines,
}
