"""A page runs no script but its own, whatever is in the files that it was made from."""

import contextlib
import json
import re
from html.parser import HTMLParser

import pytest
from test_report import identification

from icl_krr._core.files import to_markdown
from icl_krr.cli._page_parts import claims_section
from icl_krr.experiments import Plot
from icl_krr.report import Facts, Section, render, sweep_section
from icl_krr.report._chart import Axis, Board, BoardTable, Cell
from icl_krr.report._page import Fold

# RUN opens a dialog and URL makes a request, and each says which payload it belongs to
DRAWINGS = (
    "<script>RUN</script>",
    "<script><![CDATA[RUN]]></script>",
    '<script href="URL"></script>',
    '<script href="data:text/javascript,RUN"></script>',
    '<svg onload="RUN"></svg>',
    '<g onmouseover="RUN" onclick="RUN">COVER</g>',
    '<image href="x" onerror="RUN"/>',
    '<a href="javascript:RUN">COVER</a>',
    '<a xlink:href="javascript:RUN" target="_top">COVER</a>',
    '<a href="URL" target="_top">COVER</a>',
    '<a><animate attributeName="href" values="javascript:RUN"/>COVER</a>',
    '<g><set attributeName="onmouseover" to="RUN"/>COVER</g>',
    '<animate attributeName="x" dur="1ms" onbegin="RUN" onend="RUN"/>',
    '<use href="URL#a"/>',
    "<use href=\"data:image/svg+xml,%3Csvg id='a' onload='RUN'/%3E#a\"/>",
    '<image width="9" height="9" href="URL"/>',
    '<filter id="f"><feImage href="URL"/></filter><rect filter="url(#f)" width="9" height="9"/>',
    '<rect style="fill: url(URL#a)" width="9" height="9"/>',
    '<style>@import "URL";</style>',
    "<style>* { background: url(URL) }</style>",
    "<style>@font-face { font-family: F; src: url(URL) } text { font-family: F }</style>"
    "<text>t</text>",
    '<foreignObject width="9" height="9"><iframe XHTML src="javascript:RUN"/></foreignObject>',
    '<foreignObject width="9" height="9"><img XHTML src="x" onerror="RUN"/></foreignObject>',
    '<iframe XHTML src="URL"/>',
    '<object XHTML data="data:text/html,%3Cscript%3ERUN%3C/script%3E"/>',
    '<meta XHTML http-equiv="refresh" content="0;url=URL"/>',
    "&inside;",
    "&outside;",
)
STRINGS = (
    "<script>RUN</script>",
    "</script><script>RUN</script>",
    "<!--<script>RUN</script>-->",
    "</title></style><script>RUN</script>",
    "<img src=x onerror=RUN>",
    '"><svg onload=RUN>',
    "'><svg/onload=RUN>",
    '" onmouseover="RUN" autofocus tabindex="1" onfocus="RUN" x="',
    "<iframe src='javascript:RUN'></iframe>",
    "<iframe srcdoc='<script>RUN</script>'></iframe>",
    "<iframe src='URL'></iframe>",
    "<object data='javascript:RUN'></object>",
    "<embed src='URL'>",
    "<link rel='stylesheet' href='URL'>",
    "<form action='javascript:RUN'><input autofocus onfocus='RUN'></form>",
    "<details open ontoggle='RUN'></details>",
    "<video><source onerror='RUN'></video>",
    "&lt;script&gt;RUN&lt;/script&gt;",
    "\\u003cscript>RUN</script>",
    "<a href='javascript:RUN' class='foul'>a link</a>",
    "[a link](javascript:RUN)",
    "{{ 7 * 7 }}{% raw %}<script>RUN</script>",
    "<svg><animate onbegin=RUN attributeName=x dur=1s></svg>",
    "<base href='URL/'>",
)
LEAVING = "<meta http-equiv='refresh' content='0;url=URL'>"


def numbered(payloads):
    xhtml = 'xmlns="http://www.w3.org/1999/xhtml"'
    names = {"XHTML": xhtml, "COVER": '<rect width="99" height="99"/>'}
    for place, payload in enumerate(payloads):
        words = {"RUN": f"alert({place})", "URL": f"http://evil.example/{place}"} | names
        yield re.sub("|".join(words), lambda match: words[match[0]], payload)  # noqa: B023


def sliders(word):
    return Board(
        axes={"place": Axis(word, (word, word))},
        data={"numbers": [word, word]},
        words=(word, Cell(("numbers", "place"))),
        caption=word,
        tables=(BoardTable(word, [word, word], [[word, Cell(("numbers", 1))]]),),
    )


def swept(words):
    """A sweep whose lines and values have any names."""
    columns = dict.fromkeys(("gap", "rmse", "exact rmse", "zero rmse"), 0.5)
    rows = [
        {"line": word, "value": value, "step": step, "seed": 0} | columns
        for word in words
        for value in (f"{words[0]} 1", f"{words[0]} 2")
        for step in (0, 1)
    ]
    return sweep_section("sweep-1", words[0], Plot("value", "gap", ("line",)), rows, words[0])


def folders(words, folder):
    """Folders of `identify` and of `verify` that say these words wherever a file has a string."""
    word = " ".join(words)
    versions = {"icl_krr": word, "jax": word}
    meta = {"command": list(words), "seed": word, "dtype": word, "device": word}
    meta |= {"versions": versions, "settings": {"model": word}}
    identified = identification(folder, meta, word, [(f"{i}{w}", w) for i, w in enumerate(words)])
    claims = {"meta": meta, "claims": [{"cpu_seconds": 1.0}] * len(words)}
    (folder / "claims.json").write_text(json.dumps(claims))
    table = to_markdown(([word, word], [[one, one] for one in words]))
    (folder / "claims.md").write_text("\n".join([table] * 2))
    return [identified, claims_section(folder)]


def page_of(words, folder):
    """A page that has every string in every place for strings."""
    sections = [
        Section(
            f"part-{i}",
            word,
            (word,),
            (
                Facts({word: word}),
                Fold(word, (word, BoardTable(word, [word], [[word, word]])), word),
                sliders(word),
            ),
        )
        for i, word in enumerate(words)
    ]
    all_sections = [*sections, swept(words), *folders(words, folder)]
    return render(words[0], words[0], all_sections, words).decode()


WORDS = (*STRINGS, *DRAWINGS, LEAVING)


@pytest.fixture
def foul(tmp_path):
    return page_of(list(numbered(WORDS)), tmp_path)


def elements(page):
    """All elements with their attributes, and the text of all scripts that run."""
    tags = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: tags.append((tag, [*dict(attributes)]))
    parser.feed(page)
    return tags


def test_strings_add_no_element_and_no_attribute_to_a_page(tmp_path):
    foul = page_of(list(numbered(STRINGS)), tmp_path)
    plain = page_of([f"word {i}" for i in range(len(STRINGS))], tmp_path)
    assert elements(foul) == elements(plain)
    assert "{{ 7 * 7 }}" in foul
    assert re.findall("<script>.*?</script>", foul, re.S) == [plain.split("</main>\n")[1][:-16]]


def quiet(tab, heard):
    """Wait until nothing more is heard; a busy machine takes its time."""
    before = -1
    while before < len(heard):
        before = len(heard)
        tab.wait_for_timeout(1000)


def hear(browser, path, words):
    """What a page said, asked for and opened while all of it was loaded, touched and clicked."""
    heard = []
    error = pytest.importorskip("playwright.sync_api").Error
    path.write_text(words)
    tab = browser.new_page()

    def close(dialog):
        heard.append(dialog.message)
        with contextlib.suppress(error):  # leaving the page has closed it
            dialog.dismiss()

    def refuse(route):
        heard.append(route.request.url)
        route.abort()

    tab.on("dialog", close)
    tab.route("http://**", refuse)
    tab.goto(path.as_uri())
    quiet(tab, heard)  # a dialog would swallow a click
    for box in tab.locator("a.foul").all():
        box.click(force=True)
    for chart in tab.locator("#sweep-1 .chart").all():
        chart.scroll_into_view_if_needed()  # which draws it
        points = tab.locator("#sweep-1 .chart.vega-embed .mark-symbol path")
        points.first.wait_for(state="attached")
        for point in points.all():
            point.dispatch_event("pointermove")  # which shows its words
            assert tab.locator("#vg-tooltip-element.visible").count() == 1
    quiet(tab, heard)
    heard.append(tab.url)
    tab.close()
    return {*heard} - {path.as_uri()}


@pytest.mark.extras
def test_no_payload_lives_in_a_page(browser, foul, tmp_path):
    assert hear(browser, tmp_path / "report.html", foul) == set()


@pytest.mark.extras
def test_the_policy_stops_what_would_live_without_it(browser, tmp_path):
    """The page with the payloads as they are; a second wall, behind the first."""
    drawn = [f"<svg>{one}</svg>" for one in DRAWINGS if "refresh" not in one]  # which it allows
    live = "<hr>".join(numbered([*STRINGS, *drawn]))
    page = render("MARK", "", []).decode().replace("<h1>MARK</h1>", live)
    assert hear(browser, tmp_path / "with.html", page) == set()
    without = re.sub("<meta http-equiv[^>]*>", "", page, count=1)
    assert len(hear(browser, tmp_path / "without.html", without)) > 15  # 21 if none is late
