"""The built site in a real browser, with every host but this machine out of reach.

`make site-check` builds and runs it: each page loads without a failed request or a complaint, leads
nowhere that is not there, and has nothing that axe-core (WCAG 2.2 A and AA) calls serious or
critical; so have some in the dark and on a phone. The search finds a word; without JavaScript the
text is there.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urlsplit

import pytest

from tests.support.browser import Browser, BrowserError, Visit, obtain
from tests.support.waiting import eventually
from ullage.cli import site

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "build" / "docs.zip"
AXE = ROOT / ".venv-axe" / "node" / "node_modules" / "axe-core" / "axe.min.js"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not (ARCHIVE.is_file() and AXE.is_file()), reason="run `make site-check`"),
]

FILES = site.read_files(ARCHIVE) if ARCHIVE.is_file() else {}
PAGES = sorted(name for name in FILES if name.endswith(".html"))

FACTS = """({
  links: [...document.querySelectorAll('a[href]')].map(a => a.href),
  ids: [...document.querySelectorAll('[id]')].map(e => e.id),
  blank: [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src),
})"""
ASKED = """axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}).then(
  found => found.violations.filter(v => ['serious', 'critical'].includes(v.impact))
    .map(v => `${v.id}: ${v.nodes[0].html.slice(0, 200)}`))"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with site.SiteServer(("127.0.0.1", 0), FILES) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(obtain(), timeout_s=100) as running:
        yield running


@pytest.fixture(scope="module")
def anchors() -> dict[str, set[str]]:
    """What each page that was opened has: filled by the pages, read by the last test."""
    return {}


@pytest.fixture(scope="module")
def links() -> dict[str, set[str]]:
    return {}


def failures(visit: Visit) -> list[str]:
    """Return the requests of a page that were not answered, or not with what was asked for."""
    told = [(event["method"], event["params"]) for event in visit.events]
    lost = [str(each["errorText"]) for method, each in told if method == "Network.loadingFailed"]
    answers = [each["response"] for method, each in told if method == "Network.responseReceived"]
    return lost + [str(each["url"]) for each in answers if each["status"] >= 400]


def judge(visit: Visit) -> list[str]:
    visit.evaluate(f"{AXE.read_text('utf-8')};0")
    found: list[str] = visit.evaluate(ASKED)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_a_page_loads_whole_and_can_be_used_by_all(
    page: str,
    address: str,
    browser: Browser,
    anchors: dict[str, set[str]],
    links: dict[str, set[str]],
) -> None:
    visit = browser.open(address + page)
    facts: dict[str, Any] = visit.evaluate(FACTS)
    anchors[page] = set(facts["ids"])
    links[page] = {link for link in facts["links"] if link.startswith(address)}
    foreign = [url for url in visit.requests if not url.startswith((address, "data:", "blob:"))]
    assert (foreign, failures(visit), visit.console, facts["blank"]) == ([], [], (), [])
    assert judge(visit) == []
    visit.close()


@pytest.mark.parametrize("page", ["index.html", "tutorial.html", "reference/events.html"])
@pytest.mark.parametrize("width", [360, 1200])
def test_it_can_be_used_in_the_dark_and_on_a_phone(
    page: str, width: int, address: str, browser: Browser
) -> None:
    browser.open(address + page).evaluate("localStorage.clear()")  # the theme that was shown
    visit = browser.open(address + page, width=width, dark=True)
    assert visit.evaluate("document.body.dataset.mdColorScheme") == "slate"
    assert judge(visit) == []
    assert visit.evaluate("document.documentElement.scrollWidth") <= width
    visit.close()


SHADOW = "[...document.querySelectorAll('*')].map(e => e.shadowRoot).find(Boolean)"


def test_the_search_finds_a_word_with_the_network_off(address: str, browser: Browser) -> None:
    visit = browser.open(address)
    visit.evaluate("document.querySelector('.md-search__button').click()")
    eventually(lambda: visit.evaluate(f"!!{SHADOW}?.querySelector('input')"))
    browser.order("Input.insertText", {"text": "CacheBust"}, visit.session)
    first = f"{SHADOW}.querySelector('[role=listbox] a')?.href"
    eventually(lambda: visit.evaluate(first) is not None)
    assert visit.evaluate(first).endswith("/reference/events.html?h=CacheBust#cachebust")
    assert failures(visit) == []
    visit.close()


def test_the_text_is_there_without_javascript(address: str, browser: Browser) -> None:
    visit = browser.open("about:blank")
    browser.order("Emulation.setScriptExecutionDisabled", {"value": True}, visit.session)
    browser.order("Page.navigate", {"url": f"{address}tutorial.html"}, visit.session)

    def read() -> str:
        root = browser.order("DOM.getDocument", {"depth": 0}, visit.session)["root"]
        asked = {"nodeId": root["nodeId"]}
        try:
            return str(browser.order("DOM.getOuterHTML", asked, visit.session)["outerHTML"])
        except BrowserError:
            return ""  # the page came between the two questions

    eventually(lambda: "Start a model" in read())
    assert 'href="howto/llama-cpp.html"' in read()
    visit.close()


def test_every_link_and_anchor_leads_somewhere(
    address: str, anchors: dict[str, set[str]], links: dict[str, set[str]]
) -> None:
    if set(anchors) != set(PAGES):
        pytest.skip("the pages were not all opened")
    broken = []
    for page, targets in links.items():
        for link in targets:
            whole, mark = urldefrag(link)
            name = urlsplit(whole).path.removeprefix("/") or "index.html"
            if name not in FILES or (mark and name in anchors and mark not in anchors[name]):
                broken.append(f"{page} -> {link.removeprefix(address)}")
    assert broken == []
    counted = sum(map(len, links.values()))
    size = ARCHIVE.stat().st_size / 1e6
    sys.stdout.write(f"{len(PAGES)} pages, {counted} links, a zip of {size:.1f} MB\n")
