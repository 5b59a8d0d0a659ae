"""Windows that opencode was told of: found in its settings, the nearest first, comments and all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.importers.opencode_kept import COMPACTED, open_writer, restore
from ullage.api.context import of_session
from ullage.importers import load
from ullage.importers.opencode.limits import find_limit


def settings(context: object, model: str = "tiny-coder") -> dict[str, Any]:
    return {"provider": {"local": {"models": {model: {"limit": {"context": context}}}}}}


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def find(home: Path, folder: Path | None = None, **environ: str) -> int | None:
    named = str(folder) if folder is not None else None
    return find_limit("local", "tiny-coder", named, environ, home)


def test_the_settings_of_the_folder_win_over_those_above_and_of_the_user(tmp_path):
    work = tmp_path / "work" / "deep"
    assert find(tmp_path, work) is None
    put(tmp_path / ".config/opencode/config.json", json.dumps(settings(1000)))
    put(tmp_path / ".config/opencode/opencode.json", json.dumps(settings(2000)))
    assert find(tmp_path, work) == 2000
    put(tmp_path / "named.json", json.dumps(settings(3000)))
    assert find(tmp_path, work, OPENCODE_CONFIG=str(tmp_path / "named.json")) == 3000
    put(tmp_path / "work/opencode.json", json.dumps(settings(4000)))
    put(work / "opencode.json", json.dumps(settings(5000, "another")))
    assert find(tmp_path, work) == 4000
    assert find(tmp_path) == 2000
    assert find(tmp_path, XDG_CONFIG_HOME="/nowhere") is None


def test_comments_and_commas_at_the_end_are_no_faults(tmp_path):
    text = """{
      // where it runs: "http://127.0.0.1:8080/v1"
      "provider": {"local": {"options": {"baseURL": "http://127.0.0.1/*v1*/,]"}, /* mine */
        "models": {"tiny-coder": {"limit": {"context": 8192,},},},
      }},
    }"""
    put(tmp_path / ".config/opencode/opencode.jsonc", text)
    assert find(tmp_path) == 8192


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", json.dumps(settings("8192")), json.dumps(settings(-1)),
             json.dumps({"provider": {"local": {"models": [1]}}})],
)  # fmt: skip
def test_settings_that_say_nothing_are_passed_over(tmp_path, text):
    put(tmp_path / ".config/opencode/opencode.json", text)
    assert find(tmp_path) is None


def test_a_session_has_the_window_of_its_model_in_the_settings(tmp_path, monkeypatch):
    base = restore(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert load(base / COMPACTED).window_tokens is None
    put(tmp_path / ".config/opencode/opencode.json", json.dumps(settings(10_000)))
    session = load(base / COMPACTED)
    assert session.window_tokens == 10_000
    assert of_session(session).report.bound == 10_000
    with open_writer(base) as connection:
        connection.execute("UPDATE message SET data = replace(data, 'modelID', 'modelId')")
    connection.close()
    assert load(base / COMPACTED).model is None
