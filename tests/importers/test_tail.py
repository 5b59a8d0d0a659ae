"""The tail of a session file tells the same as the whole file does, and reads only the tail."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.importers.writing import assistant, boundary, lines, summary, user
from ullage import importers
from ullage.importers import tail

RECORDED = sorted((Path(__file__).parents[1] / "recordings" / "sessions").glob("*.jsonl"))
SESSIONS = [path for path in RECORDED if path.name != "codex-bare.jsonl"]  # items without counts


def written(folder: Path, *values: Any) -> str:
    path = folder / "s1.jsonl"
    path.write_bytes(lines(*values))
    return str(path)


def counted(tokens: int, total: int, window: int | None = 258_400) -> dict[str, Any]:
    """Return the line of Codex that closes a call."""
    last = {"input_tokens": tokens - 5, "cached_input_tokens": 3, "output_tokens": 5}
    info = {
        "last_token_usage": {**last, "total_tokens": tokens},
        "total_token_usage": {"total_tokens": total},
        "model_context_window": window,
    }
    return {"type": "event_msg", "payload": {"type": "token_count", "info": info}}


COMPACTED = {"type": "compacted", "payload": {"message": "what was"}}


@pytest.mark.parametrize("path", [*SESSIONS, importers.SAMPLE], ids=lambda path: path.name)
def test_the_tail_of_a_recorded_session_tells_what_the_whole_file_does(path: Path) -> None:
    whole = importers.load(path)
    one = tail.read_fullness(str(path), whole.source)
    rolled_back = path.name == "codex-rollback.jsonl"  # what a rollback undid is not in the tail
    assert rolled_back or one.tokens == whole.tokens
    assert one.window == whole.window_tokens
    if one.tokens is not None and not rolled_back:
        assert one.model == whole.model


def test_lines_of_one_answer_are_one_call_and_the_larger_report_counts(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        user("u1", None, "go"),
        assistant("a0", "u1", tokens=90, response="m0"),
        assistant("a1", "a0", tokens=300, response="m1", output=2),
        assistant("a2", "a1", tokens=300, response="m1", output=9),
    )
    first, second = tail.read_reports(path, "claude", 2)
    assert (first.tokens, first.output, second.tokens) == (300, 9, 90)


def test_subagents_errors_and_made_up_answers_report_nothing(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        assistant("a0", None, tokens=120),
        assistant("a1", "a0", tokens=7000, isSidechain=True),
        assistant("a2", "a0", tokens=8000, isApiErrorMessage=True),
        assistant("a3", "a0", tokens=9000, model="<synthetic>"),
        assistant("a4", "a0", tokens=0),
    )
    assert tail.read_fullness(path, "claude").tokens == 120


def test_behind_a_compaction_the_size_is_unknown_until_the_next_report(tmp_path: Path) -> None:
    before = [assistant("a0", None, tokens=167_000), boundary("b1", "a0", preTokens=168_000)]
    path = written(tmp_path, *before, summary("u2", "b1"))
    one = tail.read_fullness(path, "claude")
    assert (one.tokens, one.reason) == (None, "compacted, no report since")
    path = written(tmp_path, *before, summary("u2", "b1"), assistant("a3", "u2", tokens=20_000))
    one = tail.read_fullness(path, "claude")
    assert (one.tokens, one.compacts_at) == (20_000, 168_000)


def test_a_compaction_by_hand_says_nothing_of_the_next_one(tmp_path: Path) -> None:
    path = written(tmp_path, boundary("b1", None, trigger="manual"), assistant("a1", "b1"))
    assert tail.read_fullness(path, "claude").compacts_at is None


def test_a_count_that_codex_repeats_behind_a_compaction_is_no_report(tmp_path: Path) -> None:
    path = written(tmp_path, counted(900, 900), COMPACTED, counted(900, 900))
    one = tail.read_fullness(path, "codex")
    assert (one.tokens, one.reason) == (None, "compacted, no report since")
    path = written(tmp_path, counted(900, 900), COMPACTED, counted(100, 1000))
    one = tail.read_fullness(path, "codex")
    assert (one.tokens, one.window, one.origin, one.cached) == (100, 258_400, "reported", 3)


def test_a_large_file_is_read_from_its_end_alone(tmp_path: Path) -> None:
    path = tmp_path / "s1.jsonl"
    filler = b'{"type": "user", "uuid": "%s"}\n' % (b"x" * 1000)
    path.write_bytes(filler * 3000 + lines(assistant("a1", None, tokens=77)))
    assert tail.read_fullness(str(path), "claude").tokens == 77
    held, whole = tail.read_tail(str(path), tail.TAIL)
    assert not whole
    assert sum(map(len, held)) <= tail.TAIL


def test_a_report_before_a_long_result_is_still_found(tmp_path: Path) -> None:
    path = written(tmp_path, assistant("a1", None, tokens=77), user("u2", "a1", "x" * 900_000))
    assert tail.read_fullness(path, "claude").tokens == 77


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 500,
        b"{",
        b'{"type": "assistant", "usage": [',
        b"[]\n[1, 2]\n",
        b"\xff\xfe\n" * 9,
    ],
)
@pytest.mark.parametrize("source", ["claude", "codex"])
def test_what_holds_no_report_is_unknown(tmp_path: Path, data: bytes, source: str) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_bytes(data)
    one = tail.read_fullness(str(path), source)
    assert (one.tokens, one.reason) == (None, "no report yet")


@pytest.mark.parametrize("tokens", [-1, True, 1.5, "9", 10**15, None, {}, [3]])
def test_numbers_that_are_none_are_not_taken(tmp_path: Path, tokens: Any) -> None:
    line = assistant("a1", None)
    line["message"]["usage"] = {"input_tokens": tokens}
    assert tail.read_fullness(written(tmp_path, line), "claude").tokens is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        with pytest.raises(OSError, match="no plain file"):
            tail.read_fullness(str(tmp_path / "pipe"), "claude")
    finally:
        os.close(writer)


# ── which file ──────────────────────────────────────────────────────────────────────────────────


def test_the_newest_session_of_a_folder_or_of_one_above_is_found(tmp_path: Path) -> None:
    project = tmp_path / "projects" / "-srv-my-app"
    project.mkdir(parents=True)
    for name, at in (("old", 1), ("new", 2), ("agent-x", 3), ("empty", 4)):
        (project / f"{name}.jsonl").write_text("" if name == "empty" else "{}")
        os.utime(project / f"{name}.jsonl", (at, at))
    bases = [str(tmp_path / "projects")]
    for folder in ("/srv/my.app", "/srv/my.app/src/deep"):
        assert [Path(p).stem for p in tail.list_claude(folder, bases)] == ["new", "old"]
    assert tail.list_claude("/srv/other", bases) == []
    assert [Path(p).stem for p in tail.find_named("claude", "ne", bases)] == ["new"]


def test_the_newest_rollout_that_worked_in_a_folder_is_found(tmp_path: Path) -> None:
    for day, name, folder in (("01", "a" * 36, "/srv/app"), ("02", "b" * 36, "/elsewhere")):
        path = tmp_path / "2026" / "01" / day / f"rollout-2026-01-{day}T00-00-00-{name}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"type": "session_meta", "payload": {"cwd": folder}}))
    (found,) = tail.list_codex("/srv/app/src", [str(tmp_path)])
    assert tail.identify(found) == "a" * 36
    assert tail.list_codex("/srv/app2", [str(tmp_path)]) == []
    assert [tail.identify(p) for p in tail.find_named("codex", "bb", [str(tmp_path)])] == ["b" * 36]
