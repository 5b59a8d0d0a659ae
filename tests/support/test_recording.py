"""Recordings of real servers, and how they are played back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.asking import ask
from tests.support.faults import FaultServer
from tests.support.recording import Recording

FOLDER = Path(__file__).parents[1] / "recordings"
FILES = sorted(FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recording_plays_back_what_was_recorded(path: Path) -> None:
    recording = Recording.load(path)
    with FaultServer(recording.routes()) as server:
        for exchange in recording.exchanges:
            question: Any = {} if exchange.method == "POST" else None
            assert ask(server.root_url + exchange.path, question) == (
                exchange.status,
                exchange.body,
            )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recording_names_no_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|tmp|usr|work)/|https?://", text)
    assert len(text) < 20_000


def test_the_router_answers_bare_props_with_a_placeholder() -> None:
    answer = Recording.load(FOLDER / "router-cold.json").answers("GET", "/props")[0]
    props = json.loads(answer.blocks[0])
    assert props["role"] == "router"
    assert props["default_generation_settings"]["n_ctx"] == 0


def test_what_was_never_asked_has_no_answer() -> None:
    with pytest.raises(KeyError, match="GET /nothing"):
        Recording.load(FOLDER / "plain.json").answers("GET", "/nothing")


def test_text_is_played_back_as_text(tmp_path: Path) -> None:
    path = tmp_path / "text.json"
    exchange = {"method": "GET", "path": "/metrics", "status": 200, "body": "# HELP"}
    path.write_text(json.dumps({"server": "", "note": "", "exchanges": [exchange]}))
    answer = Recording.load(path).answers("GET", "/metrics")[0]
    assert (answer.blocks, answer.content_type[:10]) == ((b"# HELP",), "text/plain")


@pytest.mark.parametrize("text", ["{}", '{"exchanges": [{"path": "/"}]}', "nonsense"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"not a recording|Expecting value"):
        Recording.load(path)
