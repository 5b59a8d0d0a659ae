"""A proxy with pages in front of a scripted server, driven as clients and browsers do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from tests.proxy.sockets import Reply, ask, of_json, request
from tests.support.browser import Visit

CHAT: Final = "/v1/chat/completions"
JSON: Final = "accept: application/json"
HTML: Final = "accept: text/html"
PATIENCE_S: Final = 20.0

LINE: Final = "the sum of every order is rounded here\n"
"""About nine tokens, as many as the scripted server makes of its bytes."""


def answer(head: bytes, body: bytes) -> bytes:
    """Answer a chat, with a report of usage that grows with what was sent."""
    if not head.startswith(b"POST"):
        return of_json({"data": []})
    sent = json.loads(body)
    tokens = len(body) // 4
    cached = max(0, tokens - 400)
    told = {
        "id": "x",
        "object": "chat.completion",
        "model": sent.get("model"),
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Done."},
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": tokens,
            "completion_tokens": 5,
            "total_tokens": tokens + 5,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }
    return of_json(told)


def say(port: int, messages: list[Any], *lines: str, model: str = "gpt-4o", **more: Any) -> Reply:
    """Send a chat through the proxy."""
    body = json.dumps({"model": model, "messages": messages, **more}).encode()
    return ask(port, request("POST", CHAT, body, "content-type: application/json", *lines))


def grow(
    port: int, turns: int, first: str = "Find the bug.", shown: str = "", **more: Any
) -> list[Any]:
    """Hold a conversation with tool results, and return its messages; `shown` is a header."""
    lines = (shown,) if shown else ()
    said: list[Any] = [
        {"role": "system", "content": "You are a helper."},
        {"role": "user", "content": first},
    ]
    for n in range(turns):
        arguments = json.dumps({"path": f"src/part{n}.py"})
        made = {"name": "read_file", "arguments": arguments}
        call = {"id": f"c{n}", "type": "function", "function": made}
        said += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"part {n} " + LINE * 80},
            {"role": "assistant", "content": f"Part {n} looks fine."},
            {"role": "user", "content": f"Go on with part {n + 1}."},
        ]
        assert say(port, said, *lines, **more).status == 200
    return said


def read(port: int, path: str, *lines: str) -> Any:
    """Return a page as JSON."""
    reply = ask(port, request("GET", path, b"", *(lines or (JSON,))))
    assert reply.status == 200, reply.body
    return reply.json()


def find_key(port: int, words: str, *lines: str) -> str:
    """Return the key of the conversation that began with these words."""
    rows = read(port, "/ullage/conversations", JSON, *lines)["conversations"]
    found = [row for row in rows if words in row["title"]]
    assert len(found) == 1, rows
    return f"{found[0]['source']}/{found[0]['id']}"


def of(page: str, key: str, **more: Any) -> str:
    """Return the address of a page about a conversation."""
    query = "".join(f"&{name}={value}" for name, value in more.items())
    return f"/ullage/{page}?of={quote(key, safe='')}{query}"


def wait(visit: Visit, test: str) -> Any:
    """Return what an expression comes to once it is true; fails where it never is."""
    until = time.monotonic() + PATIENCE_S
    while not (found := visit.evaluate(test)):
        assert time.monotonic() < until, (test, visit.console, visit.text[:500])
        time.sleep(0.05)
    return found


def until(test: Callable[[], Any]) -> Any:
    """Return what a call comes to once it is true."""
    end = time.monotonic() + PATIENCE_S
    while not (found := test()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def act(port: int, key: str, *lines: str, **told: Any) -> Reply:
    """Do something to a conversation, as a program does."""
    more = lines or ("content-type: application/json", JSON)
    return ask(port, request("POST", of("act", key), json.dumps(told).encode(), *more))


def count(told: Mapping[str, Any], fate: str) -> int:
    """Return how many units of a review have a fate."""
    return sum(unit["fate"] == fate for unit in told["units"])
