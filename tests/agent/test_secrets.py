"""A key through every error path of a turn: it is in no output, as it is or as it travels."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.agent.acting import CHAT, bodies, broken, called, chunk, said
from tests.agent.canaries import (
    read,
    strings,
)
from tests.support.faults import (
    Answer,
    FaultServer,
    closed_port,
    dropped,
    hanging,
    of_json,
    sse,
)
from ullage.agent import Agent, Live, Session
from ullage.cli.main import main
from ullage.core.messages.redaction import Redactor
from ullage.guard.summarizer import Summarizer
from ullage.providers import CallFailed, Client, Limits, Provider
from ullage.storage import ndjson
from ullage.storage.log_memory import MemoryLog
from ullage.storage.log_sqlite import SqliteLog

KEY: Final = 'sk-Sent/inel+42"q\\zz9'
"""A key with all that JSON, URLs and base64 write in another way."""

USER: Final = "cooper"


def forms(key: str) -> Mapping[str, str]:
    """Return the ways in which a key travels."""
    basic = b64encode(f"{USER}:{key}".encode()).decode()
    return {
        "raw": key,
        "json": json.dumps(key)[1:-1],
        "repr": repr(key)[1:-1],
        "url": quote(key, safe=""),
        "base64": b64encode(key.encode()).decode().rstrip("="),
        "basic": basic[12:].rstrip("="),  # what stands behind `cooper:ab`, whole
    }


FORMS: Final = MappingProxyType(forms(KEY))

ECHO: Final = (
    f"{KEY} {json.dumps(KEY)} {FORMS['url']} {FORMS['base64']}= "
    f"Basic {b64encode(f'{USER}:{KEY}'.encode()).decode()}"
)
"""A key as a careless server gives it back."""

SHORT: Final = Limits(stall_s=0.3, connect_s=1.0, attempts=2, longest_wait_s=0.01)


def leaks(texts: Mapping[str, str]) -> list[str]:
    """Return where a key stands, and in which form."""
    return [
        f"{place}: {name}"
        for place, text in texts.items()
        for name, form in FORMS.items()
        if form in text
    ]


def refusing(status: int) -> Answer:
    body = {"error": {"message": f"bad key {ECHO}", "type": "x", "headers": {"authorization": KEY}}}
    return of_json(body, status)


def plainly(status: int) -> Answer:
    # the media type stands for any header that says the key
    return Answer(status, (f"no: {ECHO}".encode(),), f"text/plain; key={FORMS['url']}; k={KEY}")


TROUBLES: Final[Mapping[str, Answer]] = MappingProxyType(
    {
        **{f"json {status}": refusing(status) for status in (400, 401, 429, 500)},
        **{f"text {status}": plainly(status) for status in (302, 400, 401, 429, 500)},
        "broken stream": broken(f"my key is {KEY}, and {FORMS['url']} it is"),
        "garbage event": Answer(200, (f"data: {ECHO}\n\n".encode(),), "text/event-stream"),
        "garbage": Answer(200, (ECHO.encode(),), "text/event-stream"),
        "torn JSON": Answer(200, (f'data: {{"a": {ECHO}\n\n'.encode(),), "text/event-stream"),
        "error in the stream": sse({"error": {"message": ECHO, "type": "x"}}),
        "error event": sse({"type": "error", "message": ECHO}),
        "silence": hanging(),
        "no answer": dropped(),
        "an answer that says it": said(f"It is {ECHO}."),
        "an answer in one piece": sse(chunk({"content": ECHO}, finish="stop"), "[DONE]"),
        "thoughts": sse(
            chunk({"reasoning_content": ECHO}), chunk({"content": "ok"}, finish="stop"), "[DONE]"
        ),
        "a call that says it": called(("write", {"path": "a.txt", "content": ECHO})),
        "a tool of that name": called((KEY, {})),
        "a tool that reads it": called(("read", {"path": "env"})),
    }
)


@dataclass
class Seen:
    """Everything that a turn gave out: what stays and goes on, and what was told."""

    kept: dict[str, str] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)


def provider(server: FaultServer, **more: Any) -> Provider:
    return Provider("model", more.pop("url", server.base_url), limits=SHORT, **more)


@pytest.fixture
def turn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Callable[..., Seen]:
    """Return what runs one turn and gathers all that came of it."""

    def run(
        *script: Answer,
        made: Callable[[FaultServer], Provider] = lambda s: provider(s, api_key=KEY),
        hear: Callable[[Any], object] = lambda _: None,
        **options: Any,
    ) -> Seen:
        work, state = tmp_path / "work", tmp_path / "state"
        work.mkdir()
        (work / "env").write_text(f"KEY={ECHO}\n")
        live: list[Live] = []
        caplog.set_level(logging.INFO)
        caplog.set_level(
            1, "ullage"
        )  # what the HTTP library logs for its own debugging is not ours
        with FaultServer({CHAT: script}) as server, closing(SqliteLog(state / "log.db")) as log:
            with Session.create(log, "s") as session:
                session.hear(lambda e: live.append(e) if isinstance(e, Live) else None)
                session.hear(hear)
                runner = Agent(made(server), workspace=work, window=8_000)
                done = runner.run(session, "hello", **options)
                recorded = [event.data for event in session.events()]
                shown = repr((runner.provider, session, log))
            ndjson.export(log.read("s"), "s", tmp_path / "out.ndjson")
            sent = "\n".join(strings(bodies(server)))
        said_live = [e.data["text"] for e in live if e.type.endswith("_delta")]
        return Seen(
            {
                "events": "\n".join(strings(recorded)),
                "export": (tmp_path / "out.ndjson").read_text(),
                "file": b"".join(p.read_bytes() for p in state.iterdir()).decode("latin-1"),
                "model": sent,
                "logging": caplog.text,
                "repr": shown,
            },
            {
                "ended": "\n".join((repr(done), done.text, done.error)),
                "live": "\n".join(strings([e.data for e in live])),
                "streamed": "".join(said_live),
            },
        )

    return run


@pytest.mark.parametrize("name", TROUBLES)
def test_a_key_is_in_nothing_that_is_kept_or_sent_on(turn: Callable[..., Seen], name: str):
    assert leaks(turn(TROUBLES[name], said("ok")).kept) == []


@pytest.mark.parametrize("name", TROUBLES)
def test_a_key_is_in_nothing_that_a_turn_tells(turn: Callable[..., Seen], name: str):
    assert leaks(turn(TROUBLES[name], said("ok")).told) == []


def test_a_server_that_is_not_there_is_told_without_the_key(turn: Callable[..., Seen]):
    with closed_port() as port:
        url = f"http://{USER}:{FORMS['url']}@127.0.0.1:{port}/v1"
        seen = turn(said("never"), made=lambda s: provider(s, url=url, api_key=KEY))
    assert leaks({**seen.kept, **seen.told}) == []


def test_a_listener_that_quotes_the_key_and_crashes_is_told_without_it(turn: Callable[..., Seen]):
    def crash(event: Any) -> None:
        if event.type == "tool_call":
            raise RuntimeError(f"cannot show {KEY}")

    seen = turn(called(("list", {})), said("ok"), hear=crash)
    assert leaks(seen.kept) == []
    assert leaks(seen.told) == []


@pytest.mark.parametrize("where", ["a header", "the URL"])
def test_what_a_provider_is_sent_in_another_way_is_a_secret_too(
    turn: Callable[..., Seen], where: str
):
    def made(server: FaultServer) -> Provider:
        if where == "a header":
            return provider(server, headers={"X-Token": KEY})
        return provider(server, url=server.base_url.replace("//", f"//{USER}:{FORMS['url']}@"))

    assert leaks(turn(called(("read", {"path": "env"})), said("ok"), made=made).kept) == []


def test_presented_facts_bring_no_key_to_the_model(turn: Callable[..., Seen]):
    seen = turn(said("ok"), presenter_context={"selection": f"KEY={KEY}", "open_file": "env"})
    assert leaks(seen.kept) == []


@pytest.mark.parametrize("length", range(1, 5))
def test_a_key_is_found_in_basic_authorisation(length: int):
    pair = b64encode(b"x" * length + b":" + KEY.encode()).decode()
    text = Redactor([KEY]).text(f"Authorization: Basic {pair}")
    whole = [
        b64encode(b"x" * n + KEY.encode()).decode()[4:-4] for n in range(3)
    ]  # without what depends on what stands around
    assert not any(form in text for form in whole)


@pytest.mark.parametrize("name", [n for n in TROUBLES if not n.startswith(("a", "thoughts"))])
def test_a_failed_call_says_nothing_of_its_key_nor_do_its_causes(name: str):
    async def fails(server: FaultServer) -> CallFailed:
        client = Client(provider(server, api_key=KEY, headers={"x-more": f"{KEY}-more"}))
        try:
            with pytest.raises(CallFailed) as caught:
                await client.send({"messages": []}, lambda _: None)
        finally:
            await client.aclose()
        return caught.value

    with FaultServer({CHAT: TROUBLES[name]}) as server:
        error = asyncio.run(fails(server))
    found = leaks(
        {
            "text": "".join(traceback.format_exception(error)),
            "body": "\n".join(strings(error.body)),
            "headers": "\n".join(strings(error.headers)),
        }
    )
    assert found == []


@pytest.mark.parametrize("status", [400, 500])
def test_a_summarizer_that_fails_says_nothing_of_its_key(tmp_path: Path, status: int):
    told: list[str] = []
    with FaultServer({CHAT: plainly(status)}) as server, Session.create(MemoryLog()) as session:
        session.hear(lambda event: told.extend(strings(event.data)))
        read(session, ["a long file " * 40] * 12)
        small = Summarizer("small", base_url=server.base_url, api_key=KEY, window=8_000)
        done = asyncio.run(
            Agent(provider(server), window=8_000, summarizer=small).acompact(
                session, target_tokens=1_500
            )
        )
    found = {"told": "\n".join(told), "reason": done.reason, "events": repr(done.view.prepared)}
    assert done.checkpoint is not None
    assert leaks(found) == []


def test_a_summary_that_quotes_a_key_reaches_neither_log_nor_model():
    words = f"Done: the casks were counted with {KEY}\nNext: count the casks with {FORMS['base64']}"
    with FaultServer({CHAT: said("ok")}) as server, Session.create(MemoryLog()) as session:
        read(session, ["a long file of casks that were counted " * 20] * 12)
        runner = Agent(provider(server, api_key=KEY), window=8_000, summarizer=lambda _: words)
        asyncio.run(runner.acompact(session, target_tokens=1_500))
        runner.run(session, "go on")
        kept = {
            "events": "\n".join(strings([e.data for e in session.events()])),
            "model": "\n".join(strings(bodies(server))),
        }
    assert "history_compaction" in [e.type for e in session.events()]
    assert leaks(kept) == []


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        *((name, "") for name in TROUBLES if name not in ("json 500", "text 429", "text 500")),
        *((name, "--json") for name in ("text 401", "broken stream", "an answer that says it")),
    ],
)
def test_the_command_line_prints_no_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
    flag: str,
):
    monkeypatch.setenv("CELLAR_API_KEY", KEY)
    (tmp_path / "env").write_text(ECHO)
    store = f"sqlite:{tmp_path}/state/log.db"
    with FaultServer({CHAT: (TROUBLES[name], said("ok"))}) as server:
        model = ["--base-url", server.base_url, "--model", "model", "--window", "8000"]
        how = ["--api-key-env", "CELLAR_API_KEY", "--timeout", "0.3", "--workspace", str(tmp_path)]
        main(["run", "hello", "--store", store, *model, *how, *([flag] if flag else [])])
    for command in (["show"], ["show", "--json"], ["show", "--events"], ["show", "--full"]):
        main([*command, "--store", store])
    out, err = capfd.readouterr()
    assert "hello" in out
    assert leaks({"stdout": out, "stderr": err}) == []
