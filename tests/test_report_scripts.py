"""A page runs no script but its own, whatever is in the files that it was made from."""

import contextlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from icl_krr.cli.run_folders import claims_section, identification_section
from icl_krr.files import to_markdown
from icl_krr.report import Facts, Figure, Section, Sliders, Table, render
from icl_krr.report.sliders import Axis, Cell

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
    names = {
        "XHTML": 'xmlns="http://www.w3.org/1999/xhtml"',
        "COVER": '<rect width="99" height="99"/>',
    }
    for place, payload in enumerate(payloads):
        words = {"RUN": f"alert({place})", "URL": f"http://evil.example/{place}"} | names
        yield re.sub("|".join(words), lambda found: words[found[0]], payload)  # noqa: B023


def drawing(payload):
    return (
        '<?xml version="1.0"?><?xml-stylesheet href="http://evil.example/style.css"?>'
        '<!DOCTYPE svg [<!ENTITY inside "<script>alert(-1)</script>">'
        '<!ENTITY outside SYSTEM "http://evil.example/entity">]>'
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="90pt" height="90pt" onload="alert(-2)">{payload}</svg>'
    ).encode()


def sliders(word):
    return Sliders(
        name="moved",
        axes={word: Axis(word, (word, word))},
        start={word: 0},
        numbers={word: ((word,), np.zeros(2))},
        curves={},
        figure=None,
        moving=[],
        caption=word,
        tables=((word, [word, word], [[word, Cell(word, {word: 1})]]),),
    )


def folders(words, drawings, folder):
    """Folders of `identify` and of `verify` that say these words wherever a file has a string."""
    word = " ".join(words)
    versions = {"icl_krr": word, "jax": word}
    meta = {"command": list(words), "seed": word, "dtype": word, "device": word}
    meta |= {"versions": versions, "settings": {"model": word}}
    record = {"meta": meta, "status": word, "remain": [word], "layers": [{}] * len(words)}
    record |= {"candidates": [{}] * len(words), "baselines": {}}
    table = to_markdown(([word, word], [[one, one] for one in words]))
    files = {
        "identify.json": json.dumps(record),
        "identify.md": "\n".join([table] * 3),
        "claims.json": json.dumps({"meta": meta, "claims": [{}] * len(words)}),
        "claims.md": table,
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "heatmaps.svg").write_bytes(drawings[0])
    (folder / "filter.svg").write_bytes(drawings[1])
    return [identification_section(folder), claims_section(folder)]


def page_of(words, drawings, folder):
    """A page that has every string in every place for strings, and all drawings."""
    sections = [
        Section(
            f"part-{i}",
            word,
            (word,),
            (Facts({word: word}), Table(word, ([word], [[word, word]])), sliders(word)),
        )
        for i, word in enumerate(words)
    ]
    figures = tuple(Figure(one, words[0]) for one in drawings)
    made = [*sections, Section("drawings", "", (), figures), *folders(words, drawings, folder)]
    return render(words[0], words[0], made).decode()


@pytest.fixture
def foul(tmp_path):
    drawings = [drawing(payload) for payload in numbered(DRAWINGS)]
    return page_of(list(numbered((*STRINGS, LEAVING))), drawings, tmp_path)


def elements(page):
    """All elements with their attributes, and the text of all scripts that run."""
    found = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.append((tag, [*dict(attributes)]))
    parser.feed(page)
    return found


def test_strings_and_drawings_add_no_element_and_no_attribute_to_a_page(foul, tmp_path):
    count = len(STRINGS) + 1
    plain = page_of(["word"] * count, [drawing("")] * len(DRAWINGS), tmp_path)
    assert elements(foul) == elements(plain)
    assert "{{ 7 * 7 }}" in foul
    assert re.findall("<script>.*?</script>", foul, re.S) == [plain.split("</main>\n")[1][:-16]]


def quiet(shown, heard):
    """Wait until nothing more is heard; a busy machine takes its time."""
    before = -1
    while before < len(heard):
        before = len(heard)
        shown.wait_for_timeout(1000)


def hear(browser, path, words):
    """What a page said, asked for and opened while all of it was loaded, touched and clicked."""
    heard = []
    error = pytest.importorskip("playwright.sync_api").Error
    path.write_text(words)
    shown = browser.new_page()

    def close(dialog):
        heard.append(dialog.message)
        with contextlib.suppress(error):  # leaving the page has closed it
            dialog.dismiss()

    def refuse(route):
        heard.append(route.request.url)
        route.abort()

    shown.on("dialog", close)
    shown.route("http://**", refuse)
    shown.goto(path.as_uri())
    quiet(shown, heard)  # a dialog would swallow a click
    for box in shown.locator("figure img, a.foul").all():
        box.click(force=True)
    quiet(shown, heard)
    heard.append(shown.url)
    shown.close()
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
