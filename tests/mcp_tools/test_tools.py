"""The tools in one process with the SDK's client: what is refused, what is found, who may ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

import ullage
from ullage.cli.window import describe
from ullage.core.compaction.edits import reference
from ullage.mcp_tools.server import Gate, make_server
from ullage.mcp_tools.tools import HostTools

MESSAGES = [
    {"role": ("user", "assistant")[n % 2], "content": f"{n}: the pump of deck {n} is worn. " * 9}
    for n in range(12)
]
OWN = {"messages": MESSAGES}

Talk = Callable[[Callable[["Host"], Coroutine[Any, Any, None]]], None]


class Host:
    """What a program asks of the tools."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def ask(self, name: str, **given: Any) -> Any:
        made = await self._client.call_tool(name, given)
        assert not made.is_error, made.content
        return made.structured_content

    async def fail(self, name: str, **given: Any) -> str:
        made = await self._client.call_tool(name, given)
        assert made.is_error
        return str(made.content[0].text)  # type: ignore[union-attr]  # it is text


@pytest.fixture
def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Lend a host that sessions of Codex and a store with one text are lent to."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ULLAGE_OFFLINE", "1")
    monkeypatch.delenv("CODEX_HOME", raising=False)
    url = f"sqlite:{tmp_path / 'kept.db'}"
    store = ullage.open_store(url)
    ullage.compact(MESSAGES, target_tokens=300, store=store, runtime=ullage.Runtime())
    store.close()
    tools = HostTools(
        ("codex",), lambda: [url], lambda model, base, by: describe(ullage.window(model))
    )
    server = make_server(tools, "1", {"type": "object"})

    def run(told: Callable[[Host], Coroutine[Any, Any, None]]) -> None:
        async def connect() -> None:
            async with Client(server) as client:
                await told(Host(client))

        asyncio.run(connect())

    return run


def test_errors_are_tool_errors_in_our_own_words(talk: Talk) -> None:
    async def told(host: Host) -> None:
        assert "name one conversation" in await host.fail("context", conversation={})
        both = {"messages": MESSAGES, "source": "codex"}
        assert "name one conversation" in await host.fail("context", conversation=both)
        lent = await host.fail("count", conversation={"source": "claude"})
        assert "--from codex" in lent
        none = await host.fail("count", conversation={"source": "codex"})
        assert "no session of codex was found" in none
        one = {"source": "codex", "session": "0123"}
        assert "0123" in await host.fail("count", conversation=one)
        assert "one thing to count" in await host.fail("count")
        offline = await host.fail("count", text="a", base_url="http://127.0.0.1:9/v1")
        assert "counted offline" in offline
        assert "holds no text" in await host.fail("recall", reference="u:0123456789abcdef")
        assert "no words" in await host.fail("search", query="...")
        own = {"messages": [{"role": "nobody", "content": "hi"}]}
        assert "nobody" in await host.fail("count", conversation=own)
        assert "hits" in await host.fail("search", query="a", hits=1_000)

    talk(told)


def test_a_conversation_is_searched_and_read_back_by_its_own_texts(talk: Talk) -> None:
    async def told(host: Host) -> None:
        here = await host.ask("search", query="pump deck 7", conversation=OWN)
        name = here["hits"][0]["reference"]
        read = await host.ask("recall", reference=name, conversation=OWN)
        assert reference(read["text"]) == name
        assert read["text"] == MESSAGES[7]["content"]
        page = await host.ask("recall", reference=name, conversation=OWN, offset=2, limit=5)
        assert page["text"] == read["text"][2:7]
        assert page["after"] == 7
        lost = await host.fail("recall", reference="u:0123456789abcdef", conversation=OWN)
        assert "search it" in lost

    talk(told)


def test_a_store_is_searched_and_read_back(talk: Talk) -> None:
    async def told(host: Host) -> None:
        found = (await host.ask("search", query="pump deck", hits=2))["hits"]
        assert 1 <= len(found) <= 2
        read = await host.ask("recall", reference=found[0]["reference"])
        assert "pump" in read["text"]

    talk(told)


def test_sizes_and_plans_are_those_of_the_library(talk: Talk) -> None:
    async def told(host: Host) -> None:
        window = await host.ask("window", model="gpt-4o")
        assert window["input_tokens"] == ullage.window("gpt-4o").input_tokens
        counted = ullage.count(MESSAGES, model="gpt-4o")
        made = await host.ask("count", conversation=OWN, model="gpt-4o")
        assert (made["tokens"], made["basis"]) == (counted.tokens, counted.basis)
        text = await host.ask("count", text="hello")
        assert text["form"] == "text"
        told = ullage.context(MESSAGES, model="gpt-4o").to_dict()
        filled = await host.ask("context", conversation=OWN, model="gpt-4o", window=9_000)
        assert filled["used"] == told["used"]
        assert filled["window"]["tokens"] == 9_000
        for given in ({"target_tokens": 600}, {"window": 1_000}):
            plan = await host.ask("compact", conversation=OWN, model="gpt-4o", **given)
            assert plan["after"]["high"] <= 600
            assert plan["messages_after"] < plan["messages_before"] == len(MESSAGES)
            assert plan["changes"]

    talk(told)


LOCAL = {"host": "127.0.0.1:8792"}


@pytest.mark.parametrize(
    ("key", "headers", "status"),
    [
        (None, LOCAL, None),
        (None, {"host": "localhost:1", "origin": "http://localhost:3000"}, None),
        (None, {"host": "[::1]:1"}, None),
        (None, {**LOCAL, "origin": "https://evil.example"}, 403),
        (None, {**LOCAL, "origin": "http://["}, 403),
        (None, {"host": "evil.example"}, 421),
        (None, {}, 421),
        ("k", {"host": "box:1", "authorization": "Bearer k"}, None),
        ("k", {"host": "box:1", "origin": "http://box:1", "authorization": "Bearer k"}, None),
        ("k", {"host": "box:1", "origin": "http://other", "authorization": "Bearer k"}, 403),
        ("k", {"host": "box:1", "authorization": "Bearer K"}, 401),
        ("k", LOCAL, 401),
    ],
)
def test_who_may_ask(key: str | None, headers: dict[str, str], status: int | None) -> None:
    async def nobody(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "reached"})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    gate = Gate(nobody, key)
    asyncio.run(gate({"type": "http", "headers": raw}, None, send))
    assert sent[0].get("status") == status
    asyncio.run(gate({"type": "lifespan"}, None, send))
    assert sent[-1] == {"type": "reached"}
