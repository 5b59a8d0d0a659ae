"""`ullage replay-policy`: policies compared on recorded sessions."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli import recorded
from tests.importers.opencode_kept import restore
from tests.replay.recording import save
from ullage import config
from ullage.cli.main import main
from ullage.cli.replay_policy import read_policy, write_policy
from ullage.core.compaction.policy import Policy
from ullage.core.errors import ConfigurationError
from ullage.core.session.log.event import Draft
from ullage.replay.places import list_log, load_place


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep results in a folder of the test."""
    monkeypatch.setenv("ULLAGE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_made_up_session_is_compared_where_none_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert main(["replay-policy", "--window", "25000", "--html", str(page)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("1 session, 26 turns\n")
    assert [line.split()[0] for line in said.out.splitlines()[1:6]] == [
        "policy", "ladder", "advisory", "auto_summary", "off",
    ]  # fmt: skip
    found = re.search(
        r"^recommended: (ladder|advisory|auto_summary) \(loses", said.out, re.MULTILINE
    )
    assert found is not None
    assert "this is a made-up one" in said.err
    text = page.read_text()
    assert f"<b>{found[1]}</b> recommended" in text
    assert "http" not in text.replace("http-equiv", "")


def test_the_same_command_goes_on_from_what_is_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, cache: Path
) -> None:
    for number in range(3):
        save(tmp_path / "sessions", f"{number}.json", 40, number + 1)
    words = [
        "replay-policy",
        str(tmp_path / "sessions"),
        "--policy",
        "ladder",
        "--window",
        "6000",
        "--json",
    ]
    assert main([*words, "--jobs", "1"]) == 0
    first = json.loads(capsys.readouterr().out)
    (kept,) = (cache / "replays").iterdir()
    lines = kept.read_bytes().splitlines(keepends=True)
    assert len(lines) == 4
    kept.write_bytes(b"".join(lines[:2]) + lines[2][:30])
    assert main([*words, "--jobs", "1"]) == 0
    again = json.loads(capsys.readouterr().out)
    for told in (first, again):
        del told["policies"]["ladder"]["own_ms"]
    assert again == first
    assert kept.read_bytes().startswith(b"".join(lines[:2]))
    assert main([*words, "--afresh"]) == 0
    assert len(kept.read_bytes().splitlines()) == 4


@pytest.mark.slow
def test_a_run_that_is_interrupted_keeps_what_it_did(tmp_path: Path, cache: Path) -> None:
    for number in range(12):
        save(tmp_path / "sessions", f"{number:02}.json", 200, number + 1)
    words = ["replay-policy", str(tmp_path / "sessions"), "--window", "6000", "--jobs", "2"]
    out = tmp_path / "rows.jsonl"
    command = [sys.executable, "-m", "ullage", *words, "--out", str(out)]
    environ = {**os.environ, "ULLAGE_CACHE_DIR": str(cache)}
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, start_new_session=True
    ) as run:
        until = time.monotonic() + 60
        while not out.exists() or len(out.read_bytes().splitlines()) < 6:
            assert time.monotonic() < until
            time.sleep(0.05)
        os.killpg(run.pid, signal.SIGKILL)
    done = out.read_bytes()
    whole = done[: done.rfind(b"\n") + 1]
    assert main([*words, "--out", str(out), "--json"]) == 0
    rows = [json.loads(line) for line in out.read_bytes().splitlines()[1:]]
    assert out.read_bytes().startswith(whole)
    assert len({(row["place"], row["policy"]) for row in rows}) == len(rows) == 12 * 4


def test_sessions_without_a_result_are_named_and_nothing_else_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for number in range(7):
        (tmp_path / f"{number}.json").write_text("[{}")
    assert main(["replay-policy", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "0.json: BrokenJson:" in said.err
    assert "... and 2 more sessions without a result" in said.err
    assert main(["replay-policy", "--policy", "laddr"]) == 1
    assert "no policy is named 'laddr'" in capsys.readouterr().err
    assert main(["replay-policy", str(tmp_path / "gone")]) == 1


def test_the_recommended_policy_is_written_as_settings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "ullage.toml"
    path.write_text('[context_windows]\n"a-model" = 9000\n')
    words = ["replay-policy", "--window", "25000", "--policy", "advisory", "--write", str(path)]
    assert main(words) == 0
    assert config.load({}, tmp_path / "none", named=path).settings.policy == Policy.advisory()
    capsys.readouterr()
    assert main(words) == 1
    assert "has a policy already" in capsys.readouterr().err
    own = tmp_path / "own.toml"
    own.write_text("offline = true\n")
    write_policy(own, Policy(name="mine", tail_share=0.1))
    assert "tail_share = 0.1" in own.read_text()
    assert config.load({}, tmp_path / "none", named=own).settings.offline


def test_a_policy_is_a_preset_a_preset_with_changes_or_a_file(tmp_path: Path) -> None:
    assert read_policy("advisory") == Policy.advisory()
    changed = read_policy("ladder:tail_share=0.1,keep_last=6")
    assert (changed.tail_share, changed.keep_last, changed.rungs) == (0.1, 6, Policy.ladder().rungs)
    path = tmp_path / "mine.toml"
    path.write_text('[policy]\npreset = "advisory"\ntail_tokens = 100\n')
    assert read_policy(str(path)).tail_tokens == 100
    with pytest.raises(ConfigurationError, match="tail_shar"):
        read_policy("ladder:tail_shar=0.1")
    with pytest.raises(ConfigurationError, match=r"gone\.toml"):
        read_policy(str(tmp_path / "gone.toml"))


def test_all_sessions_of_a_program_or_its_newest_are_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    from ullage.importers import SAMPLE

    home = tmp_path / "claude" / "projects" / "-home-dev-shop"
    home.mkdir(parents=True)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    words = ["replay-policy", "--from", "claude", "--policy", "ladder", "--jobs", "1"]
    assert main(words) == 1
    said = f"ullage: no session of claude was found in {home.parent}\n"
    assert capsys.readouterr().err == said
    for name in ("a", "b"):
        shutil.copy(SAMPLE, home / f"{name}.jsonl")
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("2 sessions")
    assert main([*words, "--last"]) == 0
    assert capsys.readouterr().out.startswith("1 session, ")


def test_sessions_of_the_own_log_are_replayed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import ullage
    from ullage.core.session.log.event import Draft

    url = f"sqlite:{tmp_path / 'log.db'}"
    log = ullage.open_log(url)
    with ullage.Session.create(log, "cellar") as session:
        session.record([Draft("user_message", {"text": "How full?"})])
    log.close()
    words = ["replay-policy", "--from", "ullage", "--store", url, "--window", "6000"]
    assert main(words) == 1
    assert "log:cellar@" in capsys.readouterr().err


def test_the_window_of_a_session_of_the_own_log_is_the_one_it_was_recorded_with(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, cache: Path
) -> None:
    served = {"model": "a-model-of-nobody", "window": 4_096}
    report = {"model": "a-model-of-nobody", "round": 1, "input": 10, "output": 5}
    rounds = [
        recorded.said("How full?"),
        recorded.began("t1", served=served),
        recorded.answered(1, "Half."),
        Draft("provider_usage", {**report, "context": {"tokens": 15, "window": 8_192}}),
    ]
    url = recorded.recorded(tmp_path, "cellar", rounds)
    loaded = [load_place(place.name) for place in list_log(url)]
    assert [session.window_tokens for session in loaded] == [8_192]
    url = recorded.recorded(tmp_path, "cask", rounds[:3])
    by_name = {one.id: one.window_tokens for one in map(load_place, [f"log:cask@{url}"])}
    assert by_name == {"cask": 4_096}
    words = ["replay-policy", "--from", "ullage", "--store", url, "--policy", "ladder"]
    assert main([*words, "--jobs", "1"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("2 sessions, 2 turns")
    assert "unknown" not in shown.err


def test_ray_that_is_not_there_is_named_with_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["replay-policy", "--on", "ray", "--window", "25000"]) == 1
    assert "pip install 'ullage[ray]'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--html", "--write", "--out"])
def test_a_file_that_cannot_be_written_is_the_one_document(
    option: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["replay-policy", "--window", "25000", "--policy", "ladder", "--json"]
    (tmp_path / "file").write_text("")
    assert main([*words, option, str(tmp_path / "file" / "x")]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["outcome"] == "error"
    assert "x cannot be written: " in said.err


def test_results_on_a_cluster_begin_anew_without_deleting_what_is_not_theirs(
    tmp_path: Path,
) -> None:
    words = ["replay-policy", "--window", "25000", "--on", "ray", "--afresh"]
    (tmp_path / "run.json").write_text('{"mine": 1}')
    (tmp_path / "part-1.parquet").write_text("mine")
    assert main([*words, "--out", str(tmp_path)]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part-1.parquet", "run.json"]
    (tmp_path / "run.json").write_text('{"policies": {}}')
    (tmp_path / "notes").write_text("mine")
    assert main([*words, "--out", str(tmp_path)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_ctrl_c_twice_ends_all_processes_at_once_without_a_traceback(tmp_path: Path) -> None:
    for number in range(12):
        save(tmp_path / "sessions", f"{number:02}.json", 200, number + 1)
    out = tmp_path / "rows.jsonl"
    words = ["replay-policy", str(tmp_path / "sessions"), "--window", "6000", "--jobs", "2"]
    with subprocess.Popen(
        [sys.executable, "-m", "ullage", *words, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as run:
        until = time.monotonic() + 60
        while not out.exists() or len(out.read_bytes().splitlines()) < 6:
            assert time.monotonic() < until
            time.sleep(0.05)
        try:
            os.killpg(run.pid, signal.SIGINT)
            time.sleep(0.2)
            os.killpg(run.pid, signal.SIGINT)
            _, said = run.communicate(timeout=30)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode in (130, -signal.SIGINT)  # either is 130 to a shell
    assert b"Traceback" not in said


def test_sessions_of_opencode_lie_in_a_database_and_are_replayed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = restore(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(base.parent.parent))
    words = ["replay-policy", "--from", "opencode", "--policy", "off", "--jobs", "1", "--json"]
    assert main([*words, "--window", "200000", "--out", str(tmp_path / "rows")]) == 0
    assert json.loads(capsys.readouterr().out)["policies"]["off"]["sessions"] > 0
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()[1:]]
    assert all(row["place"].startswith(f"{base}/ses_") and row["size"] > 0 for row in rows)
