"""Where a request is prepared, and where what it needs is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ullage.core.guard.request import Request
from ullage.guard.planning import LONG, MANY, is_large

TEXT = "x" * (LONG + 1)
HALVES = ["x" * (LONG // 2 + 1)] * 2
ARGUMENTS = {"function": {"name": "write", "arguments": TEXT}}


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": TEXT}],
        [{"role": "user", "content": half} for half in HALVES],
        [{"role": "user", "content": [{"type": "text", "text": half} for half in HALVES]}],
        [{"role": "assistant", "content": None, "tool_calls": [ARGUMENTS]}],
        [{"type": "function_call_output", "call_id": "c", "output": TEXT}],
        [{"type": "function_call", "call_id": "c", "arguments": TEXT}],
        [{"role": "user", "parts": [{"functionResponse": {"response": {"result": TEXT}}}]}],
        [{"role": "user", "content": [{"toolResult": {"content": [{"text": TEXT}]}}]}],
        [SimpleNamespace(role="user", content=[SimpleNamespace(text=TEXT)])],
        [{"role": "user", "content": ""}] * (MANY + 1),
    ],
    ids=lambda messages: str(messages[0])[:60],
)
def test_a_large_request_is_found_in_every_dialect(messages: list[Any]):
    assert is_large(Request(messages))


def test_a_small_request_is_none():
    history: list[Any] = [{"role": "user", "content": "x" * 100, "n": 10**9}] * MANY
    assert not is_large(Request(history))
    assert is_large(Request(history, system=TEXT))
    circle: dict[str, Any] = {"role": "user"}
    circle["content"] = [circle]
    assert not is_large(Request([circle]))


FIRST = """
import asyncio, json, sys, threading
from ullage import Guard

found = {}
WATCHED = {"ullage.core.compaction.plan", "ullage.core.dialects.openai_chat.codec", "tiktoken"}

def hear(event, args):
    if event == "import" and args[0] in WATCHED:
        found.setdefault(args[0], threading.current_thread() is threading.main_thread())

async def main():
    guard = Guard("gpt-4o", window=20_000)
    sys.addaudithook(hear)
    await getattr(guard, sys.argv[1])(*json.loads(sys.argv[2]))

async def create(**kwargs):
    return {"choices": []}

async def acall(self, messages):
    return await Guard.acall(self, create, messages)

Guard.asked = acall
asyncio.run(main())
print(json.dumps(found))
"""


@pytest.mark.parametrize("method", ["aprepare", "aassess", "asked"])
def test_a_first_request_loads_nothing_large_on_the_event_loop(method: str):
    given = json.dumps([[{"role": "user", "content": "hello"}]])
    made = subprocess.run(
        [sys.executable, "-c", FIRST, method, given],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    found = json.loads(made.stdout)
    assert found, "nothing was loaded: the test watches the wrong modules"
    assert not any(found.values()), found
