"""The page: its numbers are Python's, with a script and without one, and it asks no network."""

import json
import re
import shutil

import jax
import numpy as np
import pytest
from helpers import numpy

import icl_krr as ik
from icl_krr._core.files import from_csv, to_csv, to_markdown
from icl_krr.cli import _page_parts, main
from icl_krr.cli._page_parts import TITLE, WORDS, identification_section, sweep_section
from icl_krr.experiments import ExplorerConfig, draw_task, explore, take_snapshot
from icl_krr.report import Section, explorer_section, render, snapshots_section
from icl_krr.report._chart import shares, three_digits
from icl_krr.report._marks import log_axis

GRID = {"temperatures": (0.3, 1.0), "ridges": (0.02, 0.1, 0.5), "widths": (3, None)}
SMALL = GRID | {"steps": 4, "num_supports": 8, "num_queries": 12}


@pytest.fixture(scope="module")
def explored():
    with jax.enable_x64(True):
        return explore(ExplorerConfig(**SMALL))


@pytest.fixture(scope="module")
def page(explored, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_bytes(render("A page", "In words.", [explorer_section(explored)]))
    return path


@jax.enable_x64(True)
def independently(explored, place):
    """The gap and the RMSE of one cell by public names, and NumPy's exact regression."""
    t, r, w, depth = place
    task, config = explored.task, explored.config
    temperature, ridge, width = config.temperatures[t], config.ridges[r], config.widths[w]
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
    x, y, x_query = (np.asarray(v) for v in (task.x, task.y, task.x_query))
    gram = np.exp(x @ x.T / temperature) + absolute * np.eye(len(x))
    best = np.exp(x_query @ x.T / temperature) @ np.linalg.solve(gram, y)
    gap = np.linalg.norm(f - best) / np.linalg.norm(best)
    return gap, np.sqrt(np.mean((f - np.asarray(task.y_query)) ** 2))


@pytest.mark.parametrize("cell", [(0, 0, 0, 2), (1, 2, 1, 4), (0, 1, 1, 3)])
def test_the_grid_is_what_the_library_computes(explored, cell):
    gap, rmse = independently(explored, cell)
    np.testing.assert_allclose(explored.arrays["gap"][cell], gap, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(explored.arrays["rmse"][cell], rmse, rtol=1e-6)


def test_the_bound_holds_in_every_cell_and_numbers_are_in_words(explored):
    gap, bound = explored.arrays["gap"], explored.arrays["bound"]
    assert np.all(gap <= bound * (1 + 1e-9) + 1e-12)
    assert np.max(gap / bound) > 0.05  # and is not empty everywhere
    (board, _) = explorer_section(explored).parts
    assert three_digits(1234.5) == "1.23e+03"
    assert board.data["gap"][0][1][1][4] == three_digits(gap[0, 1, 1, 4])


def test_supports_come_in_the_order_of_their_angle():
    task = draw_task(ExplorerConfig(**SMALL))
    for x in (task.x, task.x_query):
        assert np.all(np.diff(np.arctan2(x[:, 1], x[:, 0])) > 0)


def test_patterns_and_streams_are_those_of_the_forward(x64):
    task = draw_task(ExplorerConfig(**SMALL))
    kernel = ik.Exponential(0.5)
    options = {"num_features": 2, "ridge": 1.0, "steps": 2}
    model = ik.constructions.conjugate_gradient(kernel, attention="softmax", **options)
    snapshot = take_snapshot(model, task)
    by_name = {(p.block, p.name): p.weights for p in snapshot.patterns}
    x = np.concatenate([np.zeros((1, 2)), task.x, task.x_query])
    logits = np.exp(x @ x[: 1 + 8].T / 0.5)
    expected = logits / logits.sum(axis=1, keepdims=True)
    first = len(model.weights.prologue)
    np.testing.assert_allclose(by_name[first, "mean_p"][:, :9], expected, atol=1e-12)
    assert not by_name[first, "mean_p"][:, 9:].any()
    assert [size for _, size in snapshot.roles] == [1, 8, 12]
    _, cache = numpy(ik.run_with_cache(model, task))
    end = np.sqrt(np.sum(np.asarray(cache["alpha"][-1]) ** 2) / (1 + 8 + 12))
    np.testing.assert_allclose(snapshot.slots["alpha"][-1], end, rtol=1e-12)
    assert len(snapshot.slots["alpha"]) == model.depth + 1


def test_signed_patterns_have_a_scale_that_holds_them(x64):
    """Linear attention weighs by any number."""
    options = {"ridge": 1.0, "steps": 1, "step_size": 0.1}
    model = ik.constructions.gradient_descent(ik.Linear(), num_features=2, **options)
    snapshot = take_snapshot(model, draw_task(ExplorerConfig(**SMALL)))
    (board,) = snapshots_section(snapshot, snapshot, "a model", "float64", 0).parts
    pattern = snapshot.patterns[0].weights
    weights = np.array(board.data["constructed_weights"][0]) / 1000
    most = board.data["constructed_most"]
    assert pattern.min() < 0
    np.testing.assert_allclose(weights * most, pattern[:, : weights.shape[1]], atol=0.001 * most)
    cells = board.charts[1].complete()["layer"][0]["encoding"]["fillOpacity"]["scale"]
    assert cells["domain"] == [0, 1]
    assert "type" not in cells  # softmax alone has a square-root scale


def test_no_two_parts_of_a_page_share_a_name(page):
    text = page.read_text().split("<script>")[0]
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids)) > 10
    used = re.findall(r'(?:url\(#|href="#)([^")]+)', text)
    assert set(used) <= set(ids)


def test_slots_keep_their_digits_at_every_setting():
    """Though those of one are 1e10 times those of another."""
    scales = np.array([1e-10, 0, 1])[:, None, None]
    values = scales * np.random.default_rng(0).normal(size=(3, 4, 5))
    stored, most = shares(values, (-2, -1))
    largest = np.max(np.abs(values), axis=(1, 2))
    np.testing.assert_allclose(np.array(most, float), largest, rtol=5e-3)
    restored = np.array(stored) / 1000 * largest[:, None, None]
    assert np.all(np.abs(restored - values) <= 5.01e-4 * largest[:, None, None])


@pytest.mark.parametrize("values", [[], [0.0, np.nan], [1.0], [3e-9, 20.0], [0.2, 0.7]])
def test_a_log_axis_holds_its_values(values):
    axis = log_axis(values)
    low, high = axis["scale"]["domain"]
    assert 0 < low < high
    assert all(low <= value <= high for value in values if value > 0)
    assert 2 <= len(axis["axis"]["values"]) <= 8


def test_parts_that_are_not_ready_are_named():
    text = render("A page", "Words.", [], "Missing: <claims>.").decode()
    assert '<p class="missing">Missing: &lt;claims&gt;.</p>' in text
    assert '<p class="missing">' not in render("A page", "Words.", []).decode()


def visited(browser, page, **options):
    tab = browser.new_context(**options).new_page()
    tab.goto(page.as_uri())
    return tab


@pytest.fixture
def opened(browser, page):
    """The page at a file's address, and what it said or asked for."""
    tab = browser.new_page(viewport={"width": 1200, "height": 900})
    heard = []
    tab.on("console", lambda message: heard.append(message.text))
    tab.on("pageerror", lambda error: heard.append(str(error)))
    tab.on("request", lambda request: heard.append(request.url))
    tab.goto(page.as_uri())
    yield tab
    assert {word for word in heard if not word.startswith("data:")} == {page.as_uri()}
    tab.close()


def move(tab, **places):
    for axis, place in places.items():
        slider = tab.locator(f"input[name={axis}]")
        slider.focus()
        slider.press("Home")
        for _ in range(place):
            slider.press("ArrowRight")


AXES = ("temperature", "ridge", "channels", "depth")


def charts_of(tab):
    """The first charts of the page, all drawn by the script."""
    charts = tab.locator(".chart.vega-embed:has(svg.marks)")
    playwright = pytest.importorskip("playwright.sync_api")
    playwright.expect(charts).to_have_count(6)
    return charts


def heights(chart, place):
    """The heights of the points of a line, in pixels."""
    drawn = chart.locator(".mark-line.role-mark path").nth(place).get_attribute("d")
    return np.array(re.findall(r"[ML]-?[\d.]+,(-?[\d.]+)", drawn), float)


def expected_heights(explored, place):
    """Those of the transformer's predictions, on the scale of the specification."""
    (board, _) = explorer_section(explored).parts
    spec = board.charts[0].complete()
    low, high = spec["layer"][1]["encoding"]["y"]["scale"]["domain"]
    f = explored.arrays["prediction"][place]
    return spec["height"] * (high - f) / (high - low)


def shares_of_slot(explored, slot, place):
    """The cells of a heatmap in its order, in units of the largest."""
    values = explored.arrays[slot][place[:3]]
    return np.abs(values / np.max(np.abs(values))).ravel()


OPACITIES = """(cells) => cells.map((cell) => cell.getAttribute("fill-opacity"))"""


@pytest.mark.extras
@pytest.mark.parametrize("place", [(0, 2, 0, 1), (1, 0, 1, 4)])
def test_sliders_move_numbers_and_charts(opened, explored, place):
    charts = charts_of(opened)
    before = heights(charts.nth(0), 3)
    move(opened, **dict(zip(AXES, place, strict=True)))
    ridge = str(explored.config.ridges[place[1]])
    gap, rmse = independently(explored, place)
    control = opened.locator(".control", has=opened.locator("input[name=ridge]"))
    assert control.locator("output").inner_text() == ridge
    assert control.locator("input").get_attribute("aria-valuetext") == ridge
    assert opened.locator(".status span").all_inner_texts()[:3:2] == [f"{gap:.3g}", f"{rmse:.3g}"]
    opened.locator("summary", has_text="Numbers at these settings").click()
    row = opened.locator("tr", has_text="transformer, at this depth and width")
    assert row.locator("td").all_inner_texts() == [f"{gap:.3g}", f"{rmse:.3g}"]
    depths = opened.locator("tr", has=opened.locator("th", has_text=re.compile(f"^{place[3]}$")))
    assert depths.locator("td").all_inner_texts()[place[2]] == f"{gap:.3g}"
    after = heights(charts.nth(0), 3)
    np.testing.assert_allclose(after, expected_heights(explored, place), atol=0.05)
    assert np.max(np.abs(after - before)) > 1
    for chart, slot in zip((3, 4, 5), ("alpha", "r", "p"), strict=True):
        cells = charts.nth(chart).locator(".mark-rect").first.locator("path")
        drawn = np.array(cells.evaluate_all(OPACITIES), float)
        np.testing.assert_allclose(drawn, shares_of_slot(explored, slot, place), atol=6e-4)


@pytest.mark.extras
def test_charts_and_sliders_have_words_and_a_point_says_its_values(opened, explored):
    charts = charts_of(opened)
    for chart in charts.all():
        assert len(chart.get_attribute("aria-label")) > 60
    for axis in AXES:
        assert opened.locator(f"label[for=explorer-1-{axis}]").inner_text()
    points = charts.nth(0).locator(".mark-symbol").last.locator("path")
    points.nth(5).hover(force=True)
    said = opened.locator("#vg-tooltip-element.visible").inner_text()
    for name in ("angle", "exact KRR", "transformer"):
        assert name in said
    drawn = [float(word.replace("−", "-")) for word in re.findall(r"[−\d.]+$", said, re.M)]
    assert any(abs(drawn[-1] - f) < 0.01 for f in explored.arrays["prediction"][0, 1, 1, 2])


@pytest.mark.extras
def test_sliders_and_numbers_agree_when_one_comes_back(opened, page):
    move(opened, temperature=0, depth=4)
    opened.goto("about:blank")
    opened.go_back()
    axes = json.loads(opened.locator(".board script").text_content())["axes"]
    for axis in AXES:
        control = opened.locator(".control", has=opened.locator(f"input[name={axis}]"))
        slider, number = control.locator("input"), control.locator("output").inner_text()
        place = int(slider.input_value())
        assert axes[axis][place] == number == slider.get_attribute("aria-valuetext")


@pytest.mark.extras
def test_without_a_script_the_page_is_what_the_script_draws(browser, opened, page, explored):
    tab = visited(browser, page, java_script_enabled=False)
    live, still = charts_of(opened), tab.locator(".chart")
    for line in range(4):
        now = heights(live.nth(0), line)
        assert len(now) > 10
        np.testing.assert_allclose(heights(still.nth(0), line), now, atol=0.05)
    assert not tab.locator(".controls").is_visible()
    assert tab.locator(".chart > svg").count() == 6
    tab.locator("summary", has_text="Numbers at these settings").click()
    row = tab.locator("tr", has_text="transformer, at this depth and width")
    gap = explored.arrays["gap"][0, 1, 1, 2]
    assert row.locator("td").first.inner_text() == three_digits(gap)
    assert "temperature 0.3" in tab.locator("noscript").inner_text()


@pytest.mark.extras
def test_sliders_predictions_and_slots_are_on_one_screen(browser, explored, tmp_path):
    others = [Section(f"other-{i}", "A section with a title", (), ()) for i in range(6)]
    path = tmp_path / "report.html"
    sections = [explorer_section(explored), *others]
    path.write_bytes(render(TITLE, WORDS, sections))
    tab = visited(browser, path, viewport={"width": 1280, "height": 800})
    ends = [chart.bounding_box() for chart in charts_of(tab).all()]
    assert max(box["y"] + box["height"] for box in ends) <= 800
    assert max(box["x"] + box["width"] for box in ends) > 1230  # the full width


FARTHEST = """() => [...document.querySelectorAll("figure, .chart > svg, .chart > svg text, p")]
  .map((one) => one.getBoundingClientRect())
  .reduce(([low, high], one) => [Math.min(low, one.left), Math.max(high, one.right)], [9, 9])"""


@pytest.mark.extras
@pytest.mark.parametrize("script", [True, False])
def test_a_narrow_page_crops_nothing(browser, page, script):
    size = {"width": 400, "height": 5000}
    tab = visited(browser, page, viewport=size, java_script_enabled=script)
    if script:
        charts_of(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400
    low, high = tab.evaluate(FARTHEST)
    assert low >= 0
    assert high <= 400


COLORS = """([selector, property]) => [...document.querySelectorAll(selector)]
  .map((one) => getComputedStyle(one)[property])"""


def luminance(color):
    channels = np.array(re.findall(r"[\d.]+", color)[:3], float) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.extras
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_have_contrast(browser, page, scheme):
    """Web Content Accessibility Guidelines 2.2: 4.5 for text and 3 for lines."""
    tab = visited(browser, page, color_scheme=scheme)
    charts_of(tab)
    (paper,) = tab.evaluate(COLORS, ["body", "backgroundColor"])
    assert (luminance(paper) > 0.5) == (scheme == "light")
    for least, selector, color in (
        (4.5, "h1, h2, p, a, label, output, summary, figcaption, .legend, .caption", "color"),
        (4.5, ".chart text", "fill"),
        (3, ".chart .mark-line path, .legend path", "stroke"),
    ):
        colours = tab.evaluate(COLORS, [selector, color])
        assert len(colours) > 8
        for one in colours:
            dark, light = sorted((luminance(one), luminance(paper)))
            assert (light + 0.05) / (dark + 0.05) >= least, (selector, one)


def identification(folder, meta, word, candidates):
    """A folder of `icl-krr identify` with pairs of candidate and kernel, and a word elsewhere."""
    folder.mkdir(exist_ok=True)
    pairs = [dict(zip(("candidate", "kernel"), pair, strict=True)) for pair in candidates]
    candidate = {"alignment": [1, 2], "prediction": {"mean": 0.1, "interval": [0.05, 0.2]}}
    record = {"meta": meta, "status": word, "remain": [word], "layers": [{} for _ in pairs]}
    record |= {"baselines": {}, "candidates": [pair | candidate for pair in pairs]}
    places = [{"layer": layer, "step": step} for layer in (1, 2) for step in range(3)]
    rows = [pair | place | {"prediction": 0.1, "hat": 0.2} for pair in pairs for place in places]
    filters = {"layer": 1, "sigma": 2.0, "q": 0.3, "low": 0.2, "high": 0.4, "exact": 0.4}
    table = to_markdown(([word, word], [[*pair.values()] for pair in pairs]))
    (folder / "identify.json").write_text(json.dumps(record))
    (folder / "identify.md").write_text("\n".join([table] * 3))
    (folder / "heatmaps.csv").write_bytes(to_csv(rows))
    (folder / "filter.csv").write_bytes(to_csv([filters]))
    return identification_section(folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folders as the commands leave them."""
    folder = tmp_path_factory.mktemp("finished")
    claims, swept = folder / "claims", folder / "sweep"
    assert main(["verify", "C1", "--quick", "--out", str(claims)]) == 0
    size = ["--values", "0.1", "1", "--lines", "chebyshev", "nadaraya_watson"]
    small = ["--seeds", "2", "--steps", "2", "--num-supports", "8"]
    assert main(["sweep", "ridge", *size, *small, "--out", str(swept)]) == 0
    meta = json.loads((claims / "claims.json").read_text())["meta"] | {"dtype": "float64"}
    meta["settings"]["model"] = "linear"
    identified = folder / "identified"
    identification(identified, meta, "identified", [("gradient_descent", "linear")])
    return claims, swept, identified


def test_a_report_is_written_first_with_what_is_ready(finished, tmp_path, monkeypatch, capsys):
    """And stays whole and readable if what follows fails."""

    def fail(*_):
        raise RuntimeError

    monkeypatch.setattr(_page_parts, "explore", fail)
    with pytest.raises(RuntimeError):
        main(["report", "linear", *map(str, finished), "--out", str(tmp_path)])
    text = (tmp_path / "report.html").read_text()
    assert re.search(r"In progress at .*: sliders over constructed transformers; residual", text)
    assert "If icl-krr report does not run any more, run the command again." in text
    for words in ("C1: One softmax head", "Sweep over the axis ridge", "Conclusion: identified"):
        assert words in text
    assert text.endswith("</html>")
    assert str(tmp_path / "report.html") in capsys.readouterr().err


def test_a_sweep_shows_medians(finished):
    rows = from_csv(finished[1] / "results.csv")
    (board,) = sweep_section(0, finished[1]).parts
    chebyshev, smooth = board.data["top"]
    here = [r["gap"] for r in rows if (r["line"], r["value"], r["step"]) == ("chebyshev", 1, 2)]
    assert chebyshev[1][2] == three_digits(np.median(here))
    assert len(here) == 2
    assert smooth[0][2] == smooth[0][1]


def refused(capsys, out, *runs):
    """The one line with which the command refuses runs."""
    assert main(["report", *map(str, runs), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def without_a_line(text):
    return "\n".join(text.splitlines()[:-1]) + "\n"


@pytest.mark.parametrize(
    ("which", "name", "harm"),
    [
        (0, "claims.json", lambda text: "[]"),
        (0, "claims.md", without_a_line),
        (1, "meta.json", lambda text: "5"),
        (1, "meta.json", lambda text: text.replace('"axis"', '"other"')),
        (1, "results.csv", lambda text: text.replace(",gap,", ",hap,")),
        (1, "results.csv", without_a_line),
        (1, "results.csv", lambda text: text[: len(text) // 2]),
        (1, "results.csv", lambda text: text.splitlines()[0] + "\n"),
        (2, "identify.json", lambda text: text.replace('"remain"', '"stay"')),
        (2, "identify.md", without_a_line),
        (2, "heatmaps.csv", without_a_line),
        (2, "filter.csv", lambda text: text.replace(",q,", ",p,")),
    ],
)
def test_a_damaged_run_is_refused_first(finished, which, name, harm, tmp_path, capsys):
    folder, out = tmp_path / "damaged", tmp_path / "out"
    shutil.copytree(finished[which], folder)
    (folder / name).write_text(harm((folder / name).read_text()))
    assert "damaged" in refused(capsys, out, folder)
    assert not out.exists()


def test_what_is_no_run_is_refused_and_another_run_keeps_its_place(finished, tmp_path, capsys):
    claims, swept, identified = finished
    half, out = tmp_path / "half", tmp_path / "out"
    shutil.copytree(identified, half)
    (half / "filter.csv").unlink()
    for runs, sentence in {
        (tmp_path,): "runs must be folders written by verify, identify, sweep or tr",
        (claims, claims): "runs must include at most one folder with claims",
        (half,): "must hold all files that icl-krr identify writes, but a file",
    }.items():
        assert sentence in refused(capsys, out, *runs)
    assert not out.exists()
    before = (swept / "meta.json").read_bytes()
    sentence = "must be empty or hold a report, got other files; choose another --out"
    assert sentence in refused(capsys, swept, swept)
    assert (swept / "meta.json").read_bytes() == before
