"""One way in for all files: who wrote them is told by their content."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace

import pytest

from tests.importers.writing import assistant, item, lines, user
from ullage.core.errors import ConfigurationError
from ullage.importers import SOURCES, load, parse

CLAUDE = lines({"type": "summary", "summary": "x"}, user("u1", None, "go"), assistant("a1", "u1"))
CODEX = lines(item("user", "go"), item("assistant", "done"))
CHAT = lines({"role": "user", "content": "go"})


@pytest.mark.parametrize(("data", "source"), [(CLAUDE, "claude"), (CODEX, "codex"), (CHAT, "chat")])
def test_the_content_tells_who_wrote_a_file(tmp_path, data, source):
    path = tmp_path / "whatever.txt"
    path.write_bytes(data)
    session = load(path)
    assert (session.source, session.path) == (source, str(path))


def test_a_dash_is_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(CLAUDE)))
    session = load("-")
    assert (session.source, session.path, len(session.messages)) == ("claude", "-", 2)


@pytest.mark.parametrize("data", [b"", b"\n \r\n", b"\0" * 100, b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused_by_name(tmp_path, data):
    path = tmp_path / "nothing.jsonl"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=r"nothing\.jsonl is empty"):
        load(path)


def test_an_unknown_source_is_refused_with_those_that_are_known():
    with pytest.raises(
        ConfigurationError, match="expected one of claude, codex, opencode, chat, responses"
    ):
        parse(CHAT, source="emacs")
    requests = ("chat", "responses", "anthropic", "ollama", "gemini", "bedrock")
    assert ("claude", "codex", "opencode", *requests) == SOURCES


@pytest.mark.parametrize(("source", "data"), [("claude", CHAT), ("codex", CLAUDE)])
def test_a_file_of_another_program_is_refused(source, data):
    with pytest.raises(ConfigurationError, match="holds no"):
        parse(data, source=source)


def test_one_document_on_one_line_is_no_session_file():
    assert parse(json.dumps({"messages": [{"role": "user", "content": "go"}]}).encode()).turns == ()
