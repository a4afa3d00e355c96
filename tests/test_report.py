"""The page: its numbers are Python's, with a script and without one, and it asks no network."""

import base64
import json
import re
import shutil
from functools import partial

import jax
import numpy as np
import pytest
from matplotlib import colormaps

import icl_krr as ik
from icl_krr.cli import main
from icl_krr.cli.commands import report as reports
from icl_krr.experiments.explorer import ExplorerConfig, draw_task, explore
from icl_krr.experiments.snapshot import take_snapshot
from icl_krr.plots import pattern_figure
from icl_krr.report import Section, Table, explorer_section, render, sweep_section
from icl_krr.report.sliders import curve_grid, number_grid, three_digits

SMALL = {
    "temperatures": (0.3, 1.0),
    "ridges": (0.02, 0.1, 0.5),
    "widths": (3, None),
    "steps": 4,
    "num_supports": 8,
    "num_queries": 12,
}


@pytest.fixture(scope="module")
def found():
    with jax.enable_x64(True):
        return explore(ExplorerConfig(**SMALL))


@pytest.fixture(scope="module")
def page(found, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_bytes(render("A page", "In words.", [explorer_section(found)]))
    return path


def independently(found, temperature, ridge, width, depth):
    """The gap and the RMSE of one cell by public names, and NumPy's exact regression."""
    task = found.task
    kernel = ik.Exponential(temperature)
    absolute = ridge * np.exp(1 / temperature)
    options = {"num_features": 2, "ridge": absolute, "steps": depth}
    if width is None:
        sink = ik.Softmax(log_sink=ik.theory.log_sink(kernel, task))
        model = ik.constructions.conjugate_gradient(kernel, attention=sink, **options)
    else:
        phi = ik.sketches.nystrom_features(kernel, task.x, width=width)
        model = ik.constructions.conjugate_gradient(kernel, sketch=phi, **options)
    f = np.asarray(ik.predict(model, task))
    x, y, asked = (np.asarray(v) for v in (task.x, task.y, task.x_query))
    gram = np.exp(x @ x.T / temperature) + absolute * np.eye(len(x))
    best = np.exp(asked @ x.T / temperature) @ np.linalg.solve(gram, y)
    gap = np.linalg.norm(f - best) / np.linalg.norm(best)
    return gap, np.sqrt(np.mean((f - np.asarray(task.y_query)) ** 2))


@pytest.mark.parametrize("cell", [(0, 0, 0, 2), (1, 2, 1, 4), (0, 1, 1, 3)])
def test_the_grid_is_what_the_library_computes(found, cell):
    config = found.config
    t, r, w, depth = cell
    with jax.enable_x64(True):
        gap, rmse = independently(
            found, config.temperatures[t], config.ridges[r], config.widths[w], depth
        )
    np.testing.assert_allclose(found.arrays["gap"][cell], gap, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.arrays["rmse"][cell], rmse, rtol=1e-6)


def test_the_bound_holds_in_every_cell(found):
    gap, bound = found.arrays["gap"], found.arrays["bound"]
    assert np.all(gap <= bound * (1 + 1e-9) + 1e-12)
    assert np.max(gap / bound) > 0.05  # and is not empty everywhere


def test_supports_come_in_the_order_of_their_angle():
    task = draw_task(ExplorerConfig(**SMALL))
    for x in (task.x, task.x_query):
        assert np.all(np.diff(np.arctan2(x[:, 1], x[:, 0])) > 0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"widths": (9,)}, "width must be <= num_supports = 8, got 9"),
        ({"temperatures": (0.0,)}, "temperature must be > 0, got 0.0"),
        ({"steps": 0}, "steps must be >= 1, got 0"),
    ],
)
def test_a_grid_out_of_range_is_refused(change, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ExplorerConfig(**SMALL | change)


def test_patterns_and_streams_are_those_of_the_forward(x64):
    task = draw_task(ExplorerConfig(**SMALL))
    kernel = ik.Exponential(0.5)
    model = ik.constructions.conjugate_gradient(
        kernel, num_features=2, ridge=1.0, steps=2, attention="softmax"
    )
    seen = take_snapshot(model, task)
    by_name = {(p.block, p.name): p.weights for p in seen.patterns}
    x = np.concatenate([np.zeros((1, 2)), task.x, task.x_query])
    logits = np.exp(x @ x[: 1 + 8].T / 0.5)
    expected = logits / logits.sum(axis=1, keepdims=True)
    first = len(model.weights.prologue)
    np.testing.assert_allclose(by_name[first, "mean_p"][:, :9], expected, atol=1e-12)
    assert not by_name[first, "mean_p"][:, 9:].any()
    assert [size for _, size in seen.roles] == [1, 8, 12]
    _, cache = ik.run_with_cache(model, task)
    end = np.sqrt(np.sum(np.asarray(cache["alpha"][-1]) ** 2) / (1 + 8 + 12))
    np.testing.assert_allclose(seen.slots["alpha"][-1], end, rtol=1e-12)
    assert len(seen.slots["alpha"]) == model.depth + 1


def test_signed_patterns_have_a_scale_that_holds_them(x64):
    """Linear attention weighs by any number."""
    model = ik.constructions.gradient_descent(
        ik.Linear(), num_features=2, ridge=1.0, steps=1, step_size=0.1
    )
    seen = take_snapshot(model, draw_task(ExplorerConfig(**SMALL)))
    least = min(pattern.weights.min() for pattern in seen.patterns)
    assert least < 0
    (shown,) = pattern_figure(seen, "").axes[0].images
    assert shown.norm.vmin <= least
    assert shown.norm.vmax == -shown.norm.vmin


def test_a_page_escapes_what_it_shows():
    table = Table("<b>", (["<i>"], [["a & b"]]))
    text = render("<script>", "&", [Section("one", "One", ("<p>",), (table,))]).decode()
    assert "<title>&lt;script&gt;</title>" in text
    assert "a &amp; b" in text
    assert "<b>" not in text


def test_no_two_parts_of_a_page_share_a_name(page):
    text = re.sub(r'base64,[^"]*', "", page.read_text())
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids)) > 100
    used = re.findall(r'(?:url\(#|href="#)([^")]+)', text)
    assert set(used) <= set(ids)


def test_numbers_are_in_words():
    assert number_grid(("depth",), np.array([0.5, 1e-7]))["values"] == ["0.5", "1e-07"]
    assert three_digits(1234.5) == "1.23e+03"


def test_curves_keep_their_digits_at_every_setting():
    """Though those of one are 1e10 times those of another."""
    values = (
        np.random.default_rng(0).normal(size=(3, 4, 5)) * np.array([1e-10, 0, 1])[:, None, None]
    )
    kept = curve_grid(("temperature", "depth"), values)
    whole = np.frombuffer(base64.b64decode(kept["values"]), "<i2").reshape(3, -1)
    found = (whole * np.array(kept["scales"])[:, None]).reshape(values.shape)
    largest = np.max(np.abs(values), axis=(1, 2), keepdims=True)
    assert np.all(np.abs(found - values) <= 2e-5 * largest)


@pytest.fixture
def opened(browser, page):
    """The page at a file's address, and what it said or asked for."""
    shown = browser.new_page(viewport={"width": 1200, "height": 900})
    heard = []
    shown.on("console", lambda message: heard.append(message.text))
    shown.on("pageerror", lambda error: heard.append(str(error)))
    shown.on("request", lambda request: heard.append(request.url))
    shown.goto(page.as_uri())
    yield shown
    assert {word for word in heard if not word.startswith("data:")} == {page.as_uri()}
    shown.close()


def move(shown, **places):
    for axis, place in places.items():
        slider = shown.locator(f"input[data-axis={axis}]")
        slider.focus()
        slider.press("Home")
        for _ in range(place):
            slider.press("ArrowRight")


@pytest.mark.extras
def test_a_slider_shows_the_numbers_of_python(opened, found):
    for place in ((0, 2, 0, 1), (1, 0, 1, 4)):
        move(opened, **dict(zip(("temperature", "ridge", "width", "depth"), place, strict=True)))
        config = found.config
        t, r, w, depth = place
        with jax.enable_x64(True):
            gap, rmse = independently(
                found, config.temperatures[t], config.ridges[r], config.widths[w], depth
            )
        assert opened.locator("output[data-axis=ridge]").inner_text() == str(config.ridges[r])
        slider = opened.locator("input[data-axis=ridge]")
        assert slider.get_attribute("aria-valuetext") == str(config.ridges[r])
        row = opened.locator("tr", has_text="transformer, at this depth and width")
        assert row.locator("td").all_inner_texts() == [f"{gap:.3g}", f"{rmse:.3g}"]
        depths = opened.locator("tr", has=opened.locator("th", has_text=re.compile(f"^{depth}$")))
        assert depths.locator("td").all_inner_texts()[w] == f"{gap:.3g}"
        line = json.loads(opened.locator(".moved script").text_content())["moving"][2]
        (low, high), (bottom, top) = line["limits"], line["y"]
        f = found.arrays["prediction"][place]
        heights = bottom + (f - low) / (high - low) * (top - bottom)
        drawn = opened.locator("#explorer-1-moving-2 path").get_attribute("d")
        shown = np.array(re.findall(r" (-?[\d.]+)(?= L|$)", drawn), float)
        np.testing.assert_allclose(shown, heights, atol=0.02)


@pytest.mark.extras
def test_the_script_draws_what_matplotlib_drew(opened, found, page):
    """Where the sliders start every line and image is drawn anew, at the same places."""
    text = page.read_text()
    drawn = re.findall(r'id="explorer-1-moving-(\d+)">\s*<path d="([^"]+)"', text)
    assert len(drawn) == 13
    for name, path in drawn:
        before = np.array(re.findall(r"-?[\d.]+", path), float)
        id = f"#explorer-1-moving-{name}"
        now = opened.locator(f"{id} path").get_attribute("d")
        after = np.array(re.findall(r"-?[\d.]+", now), float)
        if len(before) < len(after):  # matplotlib leaves points out that lie on a line
            before = before[[0, 1, -2, -1]]
            after = after[[0, 1, -2, -1]]
        np.testing.assert_allclose(after, before, atol=0.06)
    moved = "#explorer-1-moving-2 path"
    before = opened.locator(moved).get_attribute("d")
    move(opened, depth=0)
    y = set(re.findall(r" ([\d.]+)(?= L|$)", opened.locator(moved).get_attribute("d")))
    assert len(y) == 1  # at depth 0 the transformer predicts 0
    assert before != opened.locator(moved).get_attribute("d")


@pytest.mark.extras
def test_sliders_and_numbers_agree_when_one_comes_back(opened, page):
    move(opened, temperature=0, depth=4)
    opened.goto("about:blank")
    opened.go_back()
    for axis in ("temperature", "ridge", "width", "depth"):
        slider = opened.locator(f"input[data-axis={axis}]")
        shown = opened.locator(f"output[data-axis={axis}]").inner_text()
        values = json.loads(opened.locator(".moved script").text_content())["axes"][axis]
        assert values[int(slider.input_value())] == shown == slider.get_attribute("aria-valuetext")


PIXELS = """async (image) => {
  const picture = new Image();
  picture.src = image.getAttribute("href") ?? image.getAttribute("xlink:href");
  await picture.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [picture.width, picture.height];
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  return [picture.width, ...context.getImageData(0, 0, picture.width, picture.height).data];
}"""


@pytest.mark.extras
def test_the_images_are_those_of_matplotlib(browser, opened, page):
    without = browser.new_context(java_script_enabled=False).new_page()
    without.goto(page.as_uri())
    for i in (13, 14, 15):
        here = opened.locator(f"#explorer-1-moving-{i}")
        source = re.search(rf'id="explorer-1-moving-{i}"[^>]*href="(data:[^"]+)"', page.read_text())
        if source is None:
            source = re.search(
                rf'href="(data:[^"]+)"[^>]*id="explorer-1-moving-{i}"', page.read_text()
            )
        redrawn = here.evaluate(PIXELS)
        here.evaluate("(image, source) => image.setAttribute('href', source)", source[1])
        assert np.max(np.abs(np.subtract(redrawn, here.evaluate(PIXELS)))) <= 4


@pytest.mark.extras
def test_a_slot_is_shown_wherever_the_sliders_stand(opened, found):
    """The largest entry of alpha has a colour of the ends, and every entry its own."""
    move(opened, temperature=0, ridge=0, width=0)
    width, *pixels = opened.locator("#explorer-1-moving-13").evaluate(PIXELS)
    seen = np.reshape(pixels, (-1, width, 4))[..., :3]
    values = found.arrays["alpha"][0, 0, 0].T
    colours = colormaps["RdBu_r"](0.5 + 0.5 * values / np.max(np.abs(values)))[..., :3] * 255
    assert np.max(np.abs(seen - colours)) <= 6


@pytest.mark.extras
def test_the_page_is_whole_without_a_script(browser, page, found):
    shown = browser.new_context(java_script_enabled=False).new_page()
    shown.goto(page.as_uri())
    assert not shown.locator(".controls").is_visible()
    assert shown.locator("figure svg").is_visible()
    row = shown.locator("tr", has_text="transformer, at this depth and width")
    gap = found.arrays["gap"][0, 1, 1, 2]
    assert row.locator("td").first.inner_text() == three_digits(gap)
    assert "temperature 0.3" in shown.locator(".setting").inner_text()


@pytest.mark.extras
def test_a_narrow_page_does_not_scroll_sideways(browser, page):
    shown = browser.new_page(viewport={"width": 360, "height": 800})
    shown.goto(page.as_uri())
    assert shown.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folders as the commands leave them."""
    folder = tmp_path_factory.mktemp("finished")
    claims, swept = folder / "claims", folder / "sweep"
    assert main(["verify", "C1", "--quick", "--out", str(claims)]) == 0
    size = ["--values", "0.1", "1", "--lines", "chebyshev", "nadaraya_watson"]
    small = ["--seeds", "2", "--steps", "2", "--num-supports", "8"]
    assert main(["sweep", "ridge", *size, *small, "--out", str(swept)]) == 0
    identified = folder / "identified"
    identified.mkdir()
    drawing = (claims / "C1.svg").read_bytes()
    meta = json.loads((claims / "claims.json").read_text())["meta"] | {"dtype": "float64"}
    meta["settings"]["model"] = "linear"
    record = {"meta": meta, "status": "identified", "remain": ["gradient_descent"]}
    record |= {"layers": [{}], "candidates": [{}], "baselines": {}}
    (identified / "identify.json").write_text(json.dumps(record))
    (identified / "identify.md").write_text(
        "\n".join(["| a | b |\n| --- | --- |\n| 1 | 2 |\n"] * 3)
    )
    for name in ("heatmaps", "filter"):
        (identified / f"{name}.svg").write_bytes(drawing)
    return claims, swept, identified


@pytest.mark.slow
def test_a_report_over_finished_runs(finished, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reports, "ExplorerConfig", partial(ExplorerConfig, **SMALL))
    monkeypatch.setattr(reports, "verify_all", None)  # what is there is not computed again
    monkeypatch.setattr(reports, "examine", None)
    assert main(["report", "linear", *map(str, finished), "--out", str(tmp_path)]) == 0
    text = (tmp_path / "report.html").read_text()
    assert len(text) < 3_000_000
    for shown in ("C1: One softmax head", "Sweep over the axis ridge", "Conclusion: identified"):
        assert shown in text
    assert "Which solver does linear run?" in text
    table = (tmp_path / "grid.csv").read_text().splitlines()
    assert len(table) == 1 + 2 * 3 * 2 * 5
    assert json.loads((tmp_path / "meta.json").read_text())["seed"] == 0
    assert "Which claims hold" in capsys.readouterr().out


def test_a_sweep_shows_medians(finished):
    _, folder, _ = finished
    rows = reports.parse_rows(folder / "results.csv")
    part = sweep_section("sweep", "ridge", rows, b"", "").parts[1]
    over, gaps = part.numbers["chebyshev: gap"]
    assert over == ("value", "step")
    here = [
        row["gap"]
        for row in rows
        if (row["line"], row["value"], row["step"]) == ("chebyshev", 1, 2)
    ]
    assert gaps[1, 2] == np.median(here)
    assert len(here) == 2
    smooth = part.numbers["nadaraya_watson: gap"][1]
    assert smooth[0, 2] == smooth[0, 1]


def without_a_line(text):
    return "\n".join(text.splitlines()[:-1]) + "\n"


@pytest.mark.parametrize(
    ("which", "name", "harm"),
    [
        (0, "claims.json", lambda text: "[]"),
        (0, "claims.json", lambda text: "[" * 10**5),
        (0, "claims.md", without_a_line),
        (1, "meta.json", lambda text: "5"),
        (1, "meta.json", lambda text: '{"config": ' * 10**5),
        (1, "meta.json", lambda text: text.replace('"axis"', '"other"')),
        (1, "results.csv", lambda text: text.replace(",gap,", ",hap,")),
        (1, "results.csv", without_a_line),
        (1, "results.csv", lambda text: text[: len(text) // 2]),
        (1, "results.csv", lambda text: text.splitlines()[0] + "\n"),
        (1, "ridge.svg", lambda text: text[:600]),
        (2, "identify.json", lambda text: text.replace('"remain"', '"stay"')),
        (2, "identify.md", without_a_line),
        (2, "heatmaps.svg", lambda text: ""),
    ],
)
def test_a_damaged_run_is_refused_before_anything_is_computed(
    finished, which, name, harm, tmp_path, capsys
):
    folder = tmp_path / "damaged"
    shutil.copytree(finished[which], folder)
    (folder / name).write_text(harm((folder / name).read_text()))
    assert main(["report", str(folder), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "damaged" in error
    assert not (tmp_path / "out").exists()


def test_a_page_takes_no_other_run_s_place(finished, capsys):
    _, folder, _ = finished
    before = (folder / "meta.json").read_bytes()
    assert main(["report", str(folder), "--out", str(folder)]) == 2
    assert (
        "must be empty or hold a report, got other files; choose another --out"
        in capsys.readouterr().err
    )
    assert (folder / "meta.json").read_bytes() == before


@pytest.mark.parametrize("kind", ["nothing", "twice", "half"])
def test_what_is_no_run_is_refused_in_a_sentence(finished, kind, tmp_path, capsys):
    claims, _, identified = finished
    half = tmp_path / "half"
    shutil.copytree(identified, half)
    (half / "filter.svg").unlink()
    runs, sentence = {
        "nothing": (
            [str(tmp_path)],
            "runs must be folders written by verify, identify, sweep or tr",
        ),
        "twice": ([str(claims), str(claims)], "runs must include at most one folder with claims"),
        "half": ([str(half)], "must hold all files that icl-krr identify writes, but a file"),
    }[kind]
    out = tmp_path / "out"
    assert main(["report", *runs, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error
    assert not out.exists()
