"""Pages in browsers: those of an origin that the operator names may ask, and read the answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from tests.proxy.sockets import Behind, Reply, Served, ask, chat, request, serving
from tests.support.browser import Browser, BrowserError, obtain

CHAT: Final = "/v1/chat/completions"
TOKEN: Final = "a-token-of-a-page-in-a-browser"
NAMED: Final = "https://chat.example"

FETCH: Final = """
fetch("http://127.0.0.1:%d/v1/chat/completions", {method: "POST",
  headers: {"content-type": "application/json", authorization: "Bearer %s", "x-title": "page"},
  body: JSON.stringify({model: "m", messages: [{role: "user", content: "hello"}]})
}).then(async (r) => [r.status, r.headers.get("x-ullage-context"), await r.json()])
"""


def html(head: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 9\r\n\r\n<p>hi</p>"


class Rig(NamedTuple):
    page: Behind
    proxy: Served
    behind: Behind

    def ask(self, method: str, path: str, *lines: str) -> Reply:
        token = f"Authorization: Bearer {TOKEN}"
        return ask(self.proxy.port, request(method, path, b"", token, *lines))


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("origins")
    with Behind(html) as page, Behind() as behind:
        settings: Any = {"origins": [page.url, NAMED], "tokens": {"page": TOKEN}}
        with serving(folder, [behind.url], **settings) as proxy:
            yield Rig(page, proxy, behind)
            assert "Traceback" not in proxy.log


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(obtain(fetch=False)) as found:
        yield found


def test_a_page_of_a_named_origin_asks_and_reads_the_answer(rig: Rig, browser: Browser) -> None:
    visit = browser.open(f"{rig.page.url}/")
    status, context, answer = visit.evaluate(FETCH % (rig.proxy.port, TOKEN))
    assert (status, answer["object"]) == (200, "chat.completion")
    assert context is not None
    assert rig.behind.bodies[-1] == chat().replace(b" ", b"")


def test_a_page_of_another_origin_can_do_nothing(rig: Rig, browser: Browser) -> None:
    before = len(rig.behind.heads)
    with Behind(html) as other:
        visit = browser.open(f"{other.url}/")
        with pytest.raises(BrowserError, match="Failed to fetch"):
            visit.evaluate(FETCH % (rig.proxy.port, TOKEN))
    assert len(rig.behind.heads) == before


def test_a_preflight_is_answered_for_named_origins_alone(rig: Rig) -> None:
    wants = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: x-api-key")
    taken = ask(rig.proxy.port, request("OPTIONS", CHAT, b"", f"Origin: {NAMED}", *wants))
    assert (taken.status, taken.get("access-control-allow-origin")) == (200, NAMED)
    assert taken.get("access-control-allow-headers") == "x-api-key"
    assert taken.get("access-control-allow-credentials") is None
    other = ask(rig.proxy.port, request("OPTIONS", CHAT, b"", "Origin: https://evil.test", *wants))
    assert (other.status, other.get("access-control-allow-origin")) == (400, None)


def test_a_named_origin_is_no_pass(rig: Rig) -> None:
    stranger = ask(rig.proxy.port, request("GET", "/v1/models", b"", f"Origin: {NAMED}"))
    assert (stranger.status, stranger.get("access-control-allow-origin")) == (401, NAMED)
    assert rig.ask("GET", "/v1/models", "Origin: https://evil.test").status == 403


def test_programs_that_are_no_pages_are_served_as_before(rig: Rig) -> None:
    reply = rig.ask("GET", "/v1/models")
    assert reply.status == 200
    assert reply.get("access-control-allow-origin") is None
    assert "origin" in str(reply.get("vary")).lower()
