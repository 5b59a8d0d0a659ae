"""`ullage mcp` as hosts meet it: the SDK's own client, a process over stdio, and HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

import ullage
from ullage import importers
from ullage.cli.main import main

SECRET = "s" * 32
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    *(
        {
            "role": ("user", "assistant")[n % 2],
            "content": f"{n}: the pump of deck {n} is worn. " * 9,
        }
        for n in range(40)
    ),
]


@dataclass(frozen=True)
class Place:
    """A machine of one's own: its environment, a session of Claude Code, and a store."""

    environ: Mapping[str, str]
    store: str
    session: str
    reference: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    home = tmp_path_factory.mktemp("home")
    folder = home / ".claude" / "projects" / "-work"
    folder.mkdir(parents=True)
    name = "11111111-2222-4333-8444-555555555555"
    (folder / f"{name}.jsonl").write_bytes(Path(importers.SAMPLE).read_bytes())
    url = f"sqlite:{home / 'kept.db'}"
    store = ullage.open_store(url)
    text = "the lighthouse keeper wrote of a marlin " * 4
    guard = ullage.Guard("m", window=800, store=store, runtime=ullage.Runtime())
    long = [{"role": "user", "content": "Keep the log."}]
    for n in range(12):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        long += [
            {"role": "assistant", "content": None, "tool_calls": [call]},  # type: ignore[dict-item]
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"{n}: {text}"},
        ]
    view = guard.prepare(long)
    store.close()
    environ = {
        "HOME": str(home), "PATH": os.environ["PATH"], "ULLAGE_OFFLINE": "1", "NO_PROXY": "*",
        "PYTHONPATH": os.pathsep.join(sys.path), "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"), "XDG_CACHE_HOME": str(home / "cache"),
    }  # fmt: skip
    return Place(environ, url, name, min(ullage.list_left_out(view.messages)))


@asynccontextmanager
async def over_stdio(place: Place, *options: str) -> AsyncIterator[Client]:
    command = ["-W", "ignore", "-m", "ullage", "mcp", "--store", place.store, *options]
    named = StdioServerParameters(command=sys.executable, args=command, env={**place.environ})
    async with Client(stdio_client(named)) as client:
        yield client


@contextmanager
def serving(place: Place, *options: str, host: str = "127.0.0.1") -> Iterator[str]:
    """Run the server over HTTP; yield its address."""
    command = [sys.executable, "-W", "ignore", "-m", "ullage", "mcp", "--store", place.store]
    process = subprocess.Popen(
        [*command, "--http", f"{host}:0", *options],
        env={**place.environ, "KEY": SECRET}, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "/mcp" in line, line + process.stderr.read()
        yield f"http://127.0.0.1:{line.rpartition(':')[2].strip().removesuffix('/mcp')}"
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=30)
    assert said == ""


async def ask(client: Client, name: str, **given: Any) -> Any:
    """Return what a tool answers; its text is what it answers, too."""
    made = await client.call_tool(name, given)
    assert not made.is_error, made.content
    assert made.structured_content is not None
    return made.structured_content


async def fail(client: Client, name: str, **given: Any) -> str:
    made = await client.call_tool(name, given)
    assert made.is_error
    return str(made.content[0].text)  # type: ignore[union-attr]


def print_json(capsys: pytest.CaptureFixture[str], place: Place, *command: str) -> Any:
    """Return what a command prints."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "ullage", *command],
        env={**place.environ}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(ran.stdout)


@pytest.mark.slow
def test_numbers_over_stdio_are_those_of_the_command_line(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"messages": MESSAGES}), "utf-8")

    async def talk() -> dict[str, Any]:
        own = {"messages": MESSAGES}
        async with over_stdio(place) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == [
                "window", "count", "context", "search", "recall", "compact",
            ]  # fmt: skip
            for tool in tools:
                assert tool.annotations is not None
                assert tool.annotations.read_only_hint
                assert tool.output_schema is not None
                assert tool.output_schema["type"] == "object"
                assert 20 < len(tool.description or "") < 120
            return {
                "window": await ask(client, "window", model="gpt-4o"),
                "count": await ask(client, "count", conversation=own, model="gpt-4o"),
                "text": await ask(client, "count", text="hello", model="gpt-4o"),
                "context": await ask(client, "context", conversation=own, model="gpt-4o"),
                "session": await ask(client, "context", conversation={"source": "claude"}),
                "named": await ask(
                    client, "count", conversation={"source": "claude", "session": "1111"}
                ),
                "search": await ask(client, "search", query="lighthouse marlin"),
                "recall": await ask(client, "recall", reference=place.reference, limit=9),
                "compact": await ask(
                    client, "compact", conversation=own, model="gpt-4o", target_tokens=2_000
                ),
            }

    told = asyncio.run(talk())
    assert told["window"] == print_json(capsys, place, "window", "gpt-4o", "--json")
    counted = ("count", str(file), "--model", "gpt-4o", "--json")
    assert told["count"] == print_json(capsys, place, *counted)
    assert told["text"] == {"tokens": 1, "low": 1, "high": 1, "basis": "exact", "form": "text"}
    filled = print_json(capsys, place, "context", str(file), "--model", "gpt-4o", "--json")
    assert {**told["context"], "source": None} == {**filled, "source": None}
    last = print_json(capsys, place, "context", "--from", "claude", "--last", "--json")
    assert told["session"] == last
    assert told["named"]["form"] == "messages"
    assert told["named"]["tokens"] > 100
    assert told["search"]["hits"][0]["reference"].startswith("u:")
    assert told["recall"]["offset"] == 0
    assert len(told["recall"]["text"]) == 9
    assert told["recall"]["after"] == 9
    assert told["compact"]["reached"]
    assert told["compact"]["after"]["high"] <= 2_000 < told["compact"]["before"]["high"]
    assert told["compact"]["messages_after"] < told["compact"]["messages_before"] == len(MESSAGES)
    assert {row["after"] for row in told["compact"]["changes"]} == {None}
    assert told["compact"]["inserts"]


@pytest.mark.slow
def test_tools_over_http_are_for_who_shows_the_key(place: Place) -> None:
    async def talk(url: str, **headers: str) -> Any:
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
        ):
            return await ask(client, "count", text="hello", model="gpt-4o")

    with serving(place) as url:
        assert asyncio.run(talk(url))["tokens"] == 1
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        for headers, status in (
            ({"origin": "https://evil.example"}, 403),
            ({"host": "evil.example"}, 421),
            ({"origin": "http://localhost:3000"}, 200),
        ):
            kinds = {"accept": "application/json, text/event-stream"}
            asked = {**kinds, **headers}
            with httpx2.Client(trust_env=False) as http:
                assert http.post(f"{url}/mcp", json=body, headers=asked).status_code == status
    with serving(place, "--token-env", "KEY", host="0.0.0.0") as url:
        assert asyncio.run(talk(url, authorization=f"Bearer {SECRET}"))["tokens"] == 1
        with httpx2.Client(trust_env=False) as http:
            refused = http.post(f"{url}/mcp", json=body, headers={"authorization": "Bearer no"})
        assert refused.status_code == 401
        assert "Authorization: Bearer" in refused.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--http", "0.0.0.0:0"), "no key is set"),
        (("--http", "127.0.0.1"), "expected HOST:PORT"),
        (("--http", "127.0.0.1:99999"), "expected HOST:PORT"),
        (("--token-env", "KEY"), "is for --http"),
        (("--http", "127.0.0.1:0", "--token-env", "NOBODY_HAS_IT"), "holds no secret"),
        (("--from", "vim"), "can be read, or none"),
    ],
)
def test_a_senseless_start_is_refused(
    options: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", *options]) == 1
    told = capsys.readouterr()
    assert said in told.err
    assert told.out == ""
