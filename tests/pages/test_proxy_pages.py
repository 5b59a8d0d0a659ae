"""The proxy's pages in a real browser: numbers, buttons, keys, and nothing that runs by itself."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest

from tests.pages.watching import (
    HTML,
    JSON,
    act,
    answer,
    count,
    find_key,
    grow,
    of,
    read,
    say,
    until,
    wait,
)
from tests.proxy.sockets import Behind, Served, ask, request, serving
from tests.support.browser import Browser, obtain
from ullage.embedded import Launch
from ullage.pages.app import VIEWERS

LOADED: Final = r'(?:src|href)="(/ullage/static/[^"]+)"(?: integrity="([^"]+)")?'
SHOTS: Final = Path(__file__).parents[2] / "build" / "pages"
EVIL: Final = (
    "<script>window.ran=1</script>",
    "<img src=x onerror='window.ran=1'>",
    '"><svg onload=window.ran=1>',
    "{{ 7*7 }} {% raw %}",
    "javascript:window.ran=1",
    "</script><script>window.ran=1</script>",
    "\u202eevil\u2066 \x1b[31m \x9b31m",
    "' onmouseover='window.ran=1",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(obtain(fetch=False)) as found:
        yield found


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Yield a proxy with one long conversation, and some short ones."""
    with Behind(answer) as behind:
        rules: Any = {"rules": [{"window": 8_000}], "store_transcripts": True}
        with serving(tmp_path_factory.mktemp("pages"), [behind.url], **rules) as served:
            deploy = {"name": "deploy", "description": "y " * 200}
            tools = [{"type": "function", "function": deploy}]
            grow(served.port, 12, "Find out why totals are off.", tools=tools)
            for n in range(5):
                say(served.port, [{"role": "user", "content": f"short one {n}"}])
            yield served
            assert "Traceback" not in served.log


def test_every_page_is_json_at_the_same_address(proxy: Served):
    key = find_key(proxy.port, "totals are off")
    told = read(proxy.port, of("conversation", key))
    assert told["session"]["requests"] == 12 == len(told["requests"])
    listed = read(proxy.port, "/ullage/sessions")["sessions"]
    entry = next(one for one in listed if one["id"] == told["session"]["id"])
    assert entry["compactions"] == told["session"]["compactions"] == len(told["compactions"]) > 0
    assert entry["saved"] == told["session"]["saved"]
    assert (
        told["session"]["used"]
        == told["requests"][-1]["usage"]["input"] + (told["requests"][-1]["usage"]["cache_read"])
    )
    assert told["report"]["used"]["tokens"] == told["session"]["used"]
    assert sum(row["tokens"] for row in told["report"]["rows"]) == told["session"]["used"]
    assert [one["name"] for one in told["waste"] if one["kind"] == "unused tool"] == ["deploy"]
    number = told["compactions"][-1]["number"]
    review = read(proxy.port, of("compaction", key, number=number))
    assert all(law["holds"] for law in review["laws"])
    assert count(review, "kept")
    assert count(review, "left out") + count(review, "shortened")
    assert review["compaction"] == told["compactions"][-1]
    messages = read(proxy.port, of("messages", key))["messages"]
    assert messages[1]["text"].startswith("Find out why")


def test_the_numbers_of_the_page_are_those_of_the_data(proxy: Served, browser: Browser):
    key = find_key(proxy.port, "totals are off")
    told = read(proxy.port, of("conversation", key))
    visit = browser.open(f"http://127.0.0.1:{proxy.port}{of('conversation', key)}")
    wait(visit, "!!document.querySelector('#chart canvas')")
    assert visit.evaluate("document.getElementById('used').textContent") == (
        f"{told['session']['used']:,}"
    )
    assert visit.evaluate("document.getElementById('report-used').textContent") == (
        f"{told['report']['used']['tokens']:,}"
    )
    assert visit.console == ()
    assert not [url for url in visit.requests if not url.startswith("http://127.0.0.1:")]
    visit.screenshot(SHOTS / "conversation.png")
    visit.close()


def watch(port: int, watchers: ExitStack) -> bool:
    """Begin to view; tell whether there was a place: one that was left is free a bit later."""
    line = watchers.enter_context(socket.create_connection(("127.0.0.1", port), 9))
    line.sendall(b"GET /ullage/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return line.recv(64).startswith(b"HTTP/1.1 200")


def test_a_viewer_too_many_is_told_so_and_sees_all_once_another_left(
    proxy: Served, browser: Browser
):
    with ExitStack() as watchers:
        for _ in range(VIEWERS):
            until(lambda: watch(proxy.port, watchers))
        visit = browser.open(f"http://127.0.0.1:{proxy.port}/")
        wait(visit, "document.getElementById('state').textContent.startsWith('too many viewers')")
        assert "No conversation yet" not in visit.text
        assert "0 conversations" not in visit.text
    wait(visit, "document.querySelectorAll('.r').length >= 6")
    visit.close()


@pytest.mark.parametrize(("width", "dark"), [(360, False), (1200, True), (2560, False)])
def test_nothing_is_cut_off_at_any_width(proxy: Served, browser: Browser, width: int, dark: bool):
    key = find_key(proxy.port, "totals are off")
    number = len(read(proxy.port, of("conversation", key))["compactions"])
    pages = ("/", of("conversation", key), of("compaction", key, number=number))
    for place, path in enumerate((*pages, of("messages", key))):
        visit = browser.open(f"http://127.0.0.1:{proxy.port}{path}", width=width, dark=dark)
        wait(visit, "document.getElementById('state').textContent === 'live'")
        over = visit.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert over <= 0, (path, over)
        unnamed = visit.evaluate(
            "[...document.querySelectorAll('button,a,input,select')].filter(e => !(e.textContent"
            ".trim() || e.getAttribute('aria-label') || e.type === 'hidden' || (e.labels && "
            "e.labels.length) || e.querySelector('title'))).length"
        )
        assert unnamed == 0, path
        assert visit.console == ()
        visit.screenshot(SHOTS / f"page{place}-{width}{'-dark' if dark else ''}.png")
        visit.close()


def test_the_first_page_moves_filters_sorts_and_takes_keys(proxy: Served, browser: Browser):
    visit = browser.open(f"http://127.0.0.1:{proxy.port}/")
    wait(visit, "document.querySelectorAll('.r').length >= 6")
    say(proxy.port, [{"role": "user", "content": "a new one, seen at once"}])
    wait(visit, "document.body.innerText.includes('a new one, seen at once')")
    visit.evaluate(
        "(e => {e.value = 'totals'; e.dispatchEvent(new Event('input'))})"
        "(document.getElementById('filter'))"
    )
    wait(visit, "document.querySelectorAll('.r').length === 1")
    visit.evaluate(
        "(e => {e.value = ''; e.dispatchEvent(new Event('input'))})"
        "(document.getElementById('filter'))"
    )
    visit.evaluate(
        "(e => {e.value = 'share'; e.dispatchEvent(new Event('input'))})"
        "(document.getElementById('sort'))"
    )
    wait(visit, "document.querySelector('.r b').textContent.includes('totals are off')")
    for key in ("j", "Enter"):
        visit.evaluate(f"document.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}'}}))")
    wait(visit, "!!document.querySelector('article')")
    assert "totals are off" in visit.evaluate("document.querySelector('h1').textContent")
    visit.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'q'}))")
    wait(visit, "!!document.getElementById('table')")
    visit.close()


def press(visit: Any, label: str) -> None:
    """Press the first button with a label."""
    assert visit.evaluate(
        "(b => b && (b.click(), true))([...document.querySelectorAll('button')]"
        f".find(b => b.textContent.startsWith({json.dumps(label)})))"
    ), label


def test_every_button_does_what_it_says(proxy: Served, browser: Browser):
    said = grow(proxy.port, 10, "Press all buttons.")
    key = find_key(proxy.port, "Press all buttons")
    until(lambda: read(proxy.port, of("conversation", key))["session"]["requests"] == 10)
    made = read(proxy.port, of("conversation", key))["compactions"]
    visit = browser.open(f"http://127.0.0.1:{proxy.port}{of('conversation', key)}")
    wait(visit, "document.getElementById('state').textContent === 'live'")
    press(visit, "Try it")
    wait(visit, "document.getElementById('answer').open")
    assert "reached" in visit.evaluate("document.getElementById('said').innerText")
    assert len(read(proxy.port, of("conversation", key))["compactions"]) == len(made)
    number = made[-1]["number"]
    visit.close()
    visit = browser.open(f"http://127.0.0.1:{proxy.port}{of('compaction', key, number=number)}")
    wait(visit, "document.querySelectorAll('.unit').length > 3")
    hidden = visit.evaluate("[...document.querySelectorAll('.fate-kept')].every(u => u.hidden)")
    assert hidden
    visit.evaluate("document.querySelector('input[data-fate=kept]').click()")
    assert not visit.evaluate("document.querySelector('.fate-kept').hidden")
    press(visit, "Recall u:")
    wait(visit, "document.getElementById('answer').open")
    assert "rounded here" in visit.evaluate("document.getElementById('said').innerText")
    visit.evaluate("document.getElementById('answer').close()")
    press(visit, "Pin it")
    wait(visit, "document.getElementById('said').innerText.includes('pinned')")
    press(visit, "Undo the last compaction")
    wait(visit, "document.getElementById('said').innerText.includes('undone')")
    told = read(proxy.port, of("conversation", key))
    assert told["compactions"][-1]["undone"]
    events = [event["text"] for event in told["events"] if event["kind"] == "operator"]
    assert any("is pinned" in text for text in events)
    assert any("was undone by an operator" in text for text in events)
    assert "was undone by an operator" in proxy.log
    assert say(proxy.port, said).status == 200
    assert visit.console == ()
    visit.close()


def test_what_is_pinned_stays_whatever_comes(tmp_path: Path):
    with Behind(answer) as behind:
        rules: Any = {"rules": [{"window": 8_000}]}
        with serving(tmp_path, [behind.url], **rules) as served:
            grow(served.port, 2, "Keep part zero.")
            key = find_key(served.port, "Keep part zero")
            reply = act(served.port, key, action="pin", message=3)
            assert reply.json()["done"] == {"message": 3, "pinned": True}
            if hasattr(signal, "SIGHUP"):  # the same configuration once more: what is pinned stays
                os.kill(served.pid, signal.SIGHUP)
                assert until(lambda: "was read again" in served.log)
            grow(served.port, 12, "Keep part zero.")
            sent = json.loads(behind.bodies[-1])["messages"]
            assert any(str(m["content"]).startswith("part 0 the sum") for m in sent)
            assert len(str(sent)) < 40_000
            refused = act(served.port, key, action="pin", message=9_999)
            assert (refused.status, "there is no message" in refused.json()["error"]) == (409, True)


def test_undo_brings_the_very_bytes_back_until_they_do_not_fit(tmp_path: Path):
    with Behind(answer) as behind:
        rules: Any = {"rules": [{"window": 10_000}]}
        with serving(tmp_path, [behind.url], **rules) as served:
            said: list[Any] = [{"role": "user", "content": "Undo me."}]
            while True:  # from turn to turn, until it was compacted
                said += [
                    {"role": "assistant", "content": "Go on."},
                    {"role": "user", "content": f"{len(said)} " + "x = 1\n" * 120},
                ]
                assert say(served.port, said).status == 200
                key = find_key(served.port, "Undo me")
                if read(served.port, of("conversation", key))["compactions"]:
                    break
            assert json.loads(behind.bodies[-1])["messages"] != said
            assert act(served.port, key, action="undo").status == 200
            assert say(served.port, said).status == 200
            assert json.loads(behind.bodies[-1])["messages"] == said
            other = [{"role": "user", "content": "Another."}, *said[1:]]
            say(served.port, other)
            assert json.loads(behind.bodies[-1])["messages"] != other, "it is this one alone"
            for _ in range(40):
                said += [
                    {"role": "assistant", "content": "Go on."},
                    {"role": "user", "content": f"{len(said)} " + "x = 1\n" * 120},
                ]
                assert say(served.port, said).status == 200
            assert len(json.loads(behind.bodies[-1])["messages"]) < len(said)


@pytest.mark.slow
def test_nothing_that_others_wrote_runs(proxy: Served, browser: Browser):
    for text in EVIL:
        name = text.replace("\x1b", "").replace("\x9b", "")
        call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": text}}
        said = [
            {"role": "user", "content": f"evil {text}"},
            {"role": "assistant", "content": text, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": text},
            {"role": "user", "content": text},
        ]
        say(proxy.port, said, model=name[:200] or "m")
    rows = read(proxy.port, "/ullage/conversations")["conversations"]
    keys = [f"proxy/{row['id']}" for row in rows if row["title"].startswith("evil")]
    assert len(keys) == len(EVIL)
    for path in ("/", *(of(page, k) for k in keys for page in ("conversation", "messages"))):
        visit = browser.open(f"http://127.0.0.1:{proxy.port}{path}")
        wait(visit, "document.getElementById('state').textContent === 'live'")
        assert visit.evaluate("window.ran") is None, path
        assert visit.console == (), path
        assert "49" not in visit.evaluate("document.querySelector('h1').textContent")
        shown = visit.evaluate("document.body.textContent")
        visit.close()
        assert not re.search("[\u202a-\u202e\u2066-\u2069\x1b\x9b]", shown.replace("\n", "")), path


def test_the_whole_page_is_small_and_loads_nothing_from_elsewhere(proxy: Served):
    page = ask(proxy.port, request("GET", "/", b"", HTML))
    text = page.body.decode()
    assert "default-src 'none'" in (page.get("content-security-policy") or "")
    assert "unsafe" not in (page.get("content-security-policy") or "")
    assert all(path.startswith("/") for path in re.findall(r'(?:src|href|action)="([^#"]+)', text))
    whole = len(page.body)
    for path, pinned in re.findall(LOADED, text):
        loaded = ask(proxy.port, request("GET", path))
        assert loaded.status == 200
        assert "immutable" in (loaded.get("cache-control") or "")
        assert pinned.startswith("sha384-") or path.endswith(".svg")
        whole += len(loaded.body)
    assert whole < 120_000


def test_only_these_pages_may_change_anything(proxy: Served):
    key = find_key(proxy.port, "totals are off")
    before = read(proxy.port, of("conversation", key))["compactions"]
    form = "content-type: application/x-www-form-urlencoded"
    own = f"origin: http://127.0.0.1:{proxy.port}"
    for method, lines in (
        ("GET", (JSON,)),
        ("POST", (form,)),
        ("POST", (form, own)),
        ("POST", ("content-type: application/json", "origin: https://evil.test")),
        ("POST", (form, "hx-request: true", "origin: null")),
    ):
        reply = ask(proxy.port, request(method, of("act", key), b"action=undo", *lines))
        assert reply.status in (403, 405), (method, lines)
    rebound = ask(proxy.port, request("GET", "/", b"", HTML, host="evil.test"))
    assert rebound.status == 403
    assert read(proxy.port, of("conversation", key))["compactions"] == before
    unknown = ask(proxy.port, request("GET", of("conversation", "proxy/none"), b"", JSON))
    assert (unknown.status, "no conversation" in unknown.json()["error"]) == (404, True)
    as_json = "content-type: application/json"
    huge = ask(proxy.port, request("POST", of("act", key), b"x" * 70_000, as_json))
    assert (huge.status, "65,536 bytes" in huge.json()["error"]) == (409, True)
    broken = ask(proxy.port, request("POST", of("act", key), b"{", as_json))
    assert broken.status == 409


def test_the_numbers_are_those_of_a_real_server(
    tmp_path: Path, llama_server: Any, browser: Browser
):
    model = llama_server(Launch(window=2_048))
    with serving(tmp_path, [model.base_url.removesuffix("/v1")]) as served:
        said: list[Any] = []
        reported: list[int] = []
        for n in range(14):
            said.append({"role": "user", "content": f"question {n}: " + "a word or two " * 60})
            reply = say(served.port, said, model="tiny", max_tokens=8)
            assert reply.status == 200, reply.body
            told = reply.json()
            reported.append(told["usage"]["prompt_tokens"])
            said.append(told["choices"][0]["message"])
        key = find_key(served.port, "question 0")
        until(lambda: read(served.port, of("conversation", key))["session"]["requests"] == 14)
        shown = read(served.port, of("conversation", key))
        assert [one["tokens"] for one in shown["requests"]] == reported
        assert shown["compactions"]
        assert shown["session"]["window"] == 2_048
        assert any(claim["source"] == "probe" for claim in shown["window"]["claims"])
        visit = browser.open(f"http://127.0.0.1:{served.port}{of('conversation', key)}")
        wait(visit, "!!document.querySelector('#chart canvas')")
        assert f"{reported[-1]:,} tokens (provider)" in visit.text
        assert "Our counts were off by" in visit.text
        visit.close()


ANNA, BEN = "a-token-of-anna-0123456789", "a-token-of-ben-0123456789"


@pytest.mark.slow
def test_of_two_keys_nobody_sees_the_other(tmp_path: Path, browser: Browser):
    with Behind(answer) as behind:
        tokens: Any = {"tokens": {"anna": ANNA, "ben": BEN}}
        with serving(tmp_path, [behind.url], **tokens) as served:
            for words, token in (("annas words", ANNA), ("bens words", BEN)):
                said = [{"role": "user", "content": words}]
                say(served.port, said, f"x-ullage-token: {token}")
            rows: list[Any] = []
            listed: list[Any] = []
            for token in (ANNA, BEN):
                shown = f"x-ullage-token: {token}"
                rows = read(served.port, "/ullage/conversations", shown, JSON)["conversations"]
                assert len(rows) == 1
                assert "words" not in json.dumps(rows)
                listed = read(served.port, "/ullage/sessions", shown)["sessions"]
                assert [one["owner"] for one in listed] == ["anna" if token == ANNA else "ben"]
            foreign = request(
                "GET", f"/ullage/context/{listed[0]['id']}", b"", f"x-ullage-token: {ANNA}"
            )
            assert ask(served.port, foreign).status == 404
            stranger = ask(served.port, request("GET", "/ullage/conversations", b"", JSON))
            assert stranger.status == 401
            key = f"proxy/{rows[0]['id']}"
            theirs = request("GET", of("conversation", key), b"", JSON, f"x-ullage-token: {ANNA}")
            assert ask(served.port, theirs).status == 404
            own = request("GET", of("conversation", key), b"", JSON, f"x-ullage-token: {BEN}")
            told = ask(served.port, own).json()
            assert (told["can"], told["report"]) == ([], None)
            lines = (f"x-ullage-token: {BEN}", "content-type: application/json")
            undo = act(served.port, key, *lines, action="undo")
            assert undo.status == 403
            for page in ("policies", "queue"):
                shown = f"x-ullage-token: {BEN}"
                asked = request("GET", f"/ullage/{page}", b"", JSON, shown)
                assert ask(served.port, asked).status == 403, page
            visit = browser.open(f"http://127.0.0.1:{served.port}/")
            wait(visit, "!!document.getElementById('token')")
            assert "words" not in visit.text
            visit.evaluate(
                f"document.getElementById('secret').value = '{BEN}'; "
                "document.querySelector('#token button').click()"
            )
            wait(visit, "document.querySelectorAll('.r').length === 1")
            assert "words" not in visit.text
            visit.close()


@pytest.mark.slow
def test_one_key_alone_reads_its_text_and_an_operator_sees_all(tmp_path: Path):
    with Behind(answer) as behind:
        one: Any = {"tokens": {"anna": ANNA}}
        (tmp_path / "one").mkdir()
        with serving(tmp_path / "one", [behind.url], **one) as served:
            shown = f"x-ullage-token: {ANNA}"
            say(served.port, [{"role": "user", "content": "annas words"}], shown)
            (row,) = read(served.port, "/ullage/conversations", shown, JSON)["conversations"]
            assert row["title"] == "annas words"
        (tmp_path / "two").mkdir()
        two: Any = {"tokens": {"anna": ANNA, "ben": BEN}, "operators": ["ben"]}
        with serving(tmp_path / "two", [behind.url], **two) as served:
            said = [{"role": "user", "content": "annas words"}]
            say(served.port, said, f"x-ullage-token: {ANNA}")
            shown = f"x-ullage-token: {BEN}"
            (row,) = read(served.port, "/ullage/conversations", shown, JSON)["conversations"]
            assert (row["title"], row["owner"]) == ("", "anna")


@pytest.mark.slow
def test_pages_can_be_turned_off_and_text_hidden(tmp_path: Path):
    with Behind(answer) as behind:
        off: Any = {"pages": False}
        (tmp_path / "off").mkdir()
        with serving(tmp_path / "off", [behind.url], **off) as served:
            assert ask(served.port, request("GET", "/ullage/live")).status == 404
            assert b"This is a guard proxy" in ask(served.port, request("GET", "/", b"", HTML)).body
        (tmp_path / "bare").mkdir()
        bare: Any = {"show_text": False}
        with serving(tmp_path / "bare", [behind.url], **bare) as served:
            say(served.port, [{"role": "user", "content": "hidden words"}])
            assert "hidden words" not in json.dumps(read(served.port, "/ullage/conversations"))


def test_half_a_character_and_what_no_xml_may_hold_break_no_page(proxy: Served):
    for text in ("cut in two \ud83d", "odd \x00\x0b\ufffe\x1b]52;c;eA==\x07 ]]>"):
        call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": text}}
        said = [
            {"role": "user", "content": text},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": text},
        ]
        assert say(proxy.port, said, model=f"m {text}").status == 200
        until(partial(has_row, proxy.port, text[:3]))
        key = find_key(proxy.port, text[:3])
        for page in ("conversation", "messages", "receipt"):
            for kind in (JSON, HTML):
                shown = ask(proxy.port, request("GET", of(page, key), b"", kind))
                assert shown.status == 200, (page, kind)
        ET.fromstring(ask(proxy.port, request("GET", of("receipt", key))).body)


def has_row(port: int, words: str) -> bool:
    """Tell whether a conversation begins with these words."""
    rows = read(port, "/ullage/conversations")["conversations"]
    return any(row["title"].startswith(words) for row in rows)


def test_what_a_worker_planned_is_not_told_by_an_earlier_request(tmp_path: Path):
    with Behind(answer) as behind, serving(tmp_path, [behind.url]) as served:
        said: list[Any] = [{"role": "user", "content": "It grows."}]
        say(served.port, said)
        key = find_key(served.port, "It grows")
        assert read(served.port, of("conversation", key))["report"] is not None
        for n in range(40):
            role = ("assistant", "user")[n % 2]
            said.append({"role": role, "content": f"{n} " + "word " * 1_600})
        assert say(served.port, said[:-1]).status == 200
        until(lambda: read(served.port, of("conversation", key))["session"]["requests"] == 2)
        told = read(served.port, of("conversation", key))
        assert (told["report"], told["can"]) == (None, ["forget"])


@pytest.mark.slow
def test_requests_are_counted_on_where_the_ledger_forgot(tmp_path: Path):
    with Behind(answer) as behind, serving(tmp_path, [behind.url]) as served:
        said: list[Any] = [{"role": "user", "content": "It comes back."}]
        for _ in range(2):
            say(served.port, said)
        for n in range(1_000):
            say(served.port, [{"role": "user", "content": f"another {n}"}])
        say(served.port, said)
        key = find_key(served.port, "It comes back")
        until(lambda: len(read(served.port, of("conversation", key))["requests"]) == 3)
        assert read(served.port, of("conversation", key))["session"]["requests"] == 3
