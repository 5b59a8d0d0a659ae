"""`ullage compact FILE` as a process: requests keep their envelope, dry runs list what would go."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TEXT = "barrel after barrel, " * 60


def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ullage", *words]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=100
    )


def talk(turns: int, said: Any = None) -> list[dict[str, Any]]:
    """Return turns of plain text; `said` makes content of it."""
    content = said or (lambda role, text: text)
    found = []
    for number in range(turns):
        for role, text in (("user", f"Question {number}?"), ("assistant", f"{number}: {TEXT}")):
            found.append({"role": role, "content": content(role, text)})
    return [*found, {"role": "user", "content": content("user", "And now?")}]


def responses(role: str, text: str) -> list[dict[str, str]]:
    return [{"type": "input_text" if role == "user" else "output_text", "text": text}]


TOOL = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}
REQUESTS: dict[str, dict[str, Any]] = {
    "chat": {
        "model": "gpt-4o",
        "messages": [{"role": "system", "content": "Be brief."}, *talk(20)],
        "tools": [{"type": "function", "function": TOOL}],
        "max_tokens": 300,
        "stream": True,
        "x_future": {"deep": [1, None]},
    },
    "responses": {
        "model": "gpt-5",
        "instructions": "Be brief.",
        "input": [{"type": "message", **message} for message in talk(20, responses)],
        "max_output_tokens": 300,
        "store": False,
        "reasoning": {"effort": "low"},
    },
    "anthropic": {
        "model": "claude-sonnet-4-5",
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": talk(20),
        "max_tokens": 300,
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "metadata": {"user_id": "u"},
        "x_future": 1,
    },
    "ollama": {
        "model": "qwen3",
        "messages": talk(20),
        "options": {"num_ctx": 8192},
        "keep_alive": "5m",
        "think": False,
    },
}


def at(document: Any, keys: tuple[str, ...]) -> list[Any]:
    for key in keys:
        document = document[key]
    assert isinstance(document, list)
    return document


@pytest.mark.slow
@pytest.mark.parametrize("wrapped", [(), ("body",), ("request",)], ids="+".join)
@pytest.mark.parametrize("dialect", REQUESTS)
def test_only_the_messages_of_a_request_change(
    dialect: str, wrapped: tuple[str, ...], tmp_path: Path
) -> None:
    request = REQUESTS[dialect]
    document: dict[str, Any] = request
    for key in wrapped:
        document = {"custom_id": "r1", key: document, "url": "/v1/x"}
    (tmp_path / "request.json").write_text(json.dumps(document))
    done = run("compact", str(tmp_path / "request.json"), "--target", "2000")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    keys = (*wrapped, "input" if dialect == "responses" else "messages")
    messages = at(made, keys)
    before = at(document, keys)
    assert len(messages) < len(before)
    assert messages[-1] == before[-1]
    at(made, keys)[:] = before
    assert made == document
    assert list(made) == list(document), "fields keep their order"


@pytest.mark.slow
def test_a_list_stays_a_list_and_lines_become_one(tmp_path: Path) -> None:
    path = tmp_path / "messages.json"
    for text in (json.dumps(talk(20)), "\n".join(map(json.dumps, talk(20)))):
        path.write_text(text)
        made = json.loads(run("compact", str(path), "--target", "2000").stdout)
        assert isinstance(made, list)
        assert len(made) < 41


def test_a_request_that_fits_comes_out_as_it_was() -> None:
    request = {"model": "gpt-5", "input": "What is in the cellar?", "x": 1}
    done = run("compact", "-", "--target", "2000", stdin=json.dumps(request))
    assert json.loads(done.stdout) == request


@pytest.mark.slow
def test_a_dry_run_lists_each_message_that_would_go(tmp_path: Path) -> None:
    result = {"role": "tool", "tool_call_id": "c", "content": "cask " * 900}
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Mend the cellar."},
        asked,
        result,
        *talk(6),
    ]
    (tmp_path / "m.json").write_text(json.dumps(messages))
    done = run("compact", str(tmp_path / "m.json"), "--target", "900", "--dry-run")
    rows = [line.split() for line in done.stdout.splitlines()[1:] if "  " in line]
    assert rows[0] == ["message", "role", "tokens", "after", "by", "begins"]
    listed = {int(row[0]): row for row in rows[1:] if row[0].isdigit()}
    small = json.loads(run("compact", str(tmp_path / "m.json"), "--target", "900").stdout)
    gone = [place for place, message in enumerate(messages) if message not in small]
    assert sorted(listed) == gone
    for place, row in listed.items():
        assert row[1] == messages[place]["role"]
        assert row[4] in ("clear", "trim_oldest", "excerpt", "block")
        assert row[3] == "gone" or int(row[3]) < int(row[2].replace(",", ""))
        said = messages[place]["content"] or "read({})"
        assert row[5] == str(said).split()[0]
    assert [row[1:3] for row in rows if row[0] == "new"] == [["user", "block"]]
