"""Rounds over real programs: all take their turn, what they took is read, and all are ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.proxy import __main__ as door
from bench.proxy import shown
from bench.proxy.contenders import DIRECT, Contender, environment, nginx, started
from bench.proxy.contenders import Place as Told
from bench.proxy.processes import Cores, Program, free_port, listening
from bench.proxy.rounds import Rig, set_up, soaked
from bench.proxy.workloads import Bodies, Plan
from tests.support.waiting import eventually

NOWHERE = Cores(None, None)
TINY = Plan(
    rounds=1, small_s=0.1, streams=2, chunks=3, crowd_rounds=1, crowd=3, crowd_s=0.1,
    crowd_limit_s=5.0, sessions=1, idle=2, soak_min=0.005,
)  # fmt: skip


class Set(NamedTuple):
    """A rig with the upstream itself and one proxy before it."""

    rig: Rig
    there: list[Contender]


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Set]:
    folder = tmp_path_factory.mktemp("rig")
    with (
        set_up(folder, NOWHERE) as rig,
        started(DIRECT, folder, rig.port, NOWHERE) as direct,
        started("bare relay", folder, rig.port, NOWHERE) as bare,
    ):
        assert direct is not None
        assert bare is not None, (folder / "bare-relay" / "errors.txt").read_text()
        yield Set(rig, [direct, bare])


@pytest.mark.slow
def test_all_take_their_turn_at_all_there_is(ready: Set):
    found = door.run(ready.rig, ready.there, TINY)["readings"]
    names = [DIRECT, "bare relay"]
    assert list(found) == ["small", "calm", "stream", "first", "again", "idle", "crowd"]
    for workload, rows in found.items():
        assert list(rows) == (names[1:] if workload == "idle" else names)
        for (reading,) in rows.values():
            failed = {"timed out": 1, "unfinished": 2} if workload == "idle" else {}
            assert reading["failed"] == failed, workload
    assert found["stream"]["bare relay"][0]["events"] == 2 * 7
    assert shown.added(found["small"], "bare relay", "end", "p50") is not None


def test_a_soak_is_watched_and_left_by_some(ready: Set):
    bodies = Bodies(ready.rig.folder / "soak", TINY)
    seen = soaked(ready.rig, ready.there[1], bodies.soak())
    assert seen["sent"] == 15
    assert seen["done"] + seen["aborted"] == 15
    assert seen["points"][0][1] > 0


def test_settings_that_are_none_are_an_error(ready: Set):
    with pytest.raises(RuntimeError, match=r"the fake upstream refused .*: b'no setting x: chunks"):
        ready.rig.set({"x": 1})


def test_who_left_streams_unfinished_is_not_asked_again(ready: Set):
    rig = Rig(ready.rig.folder, NOWHERE, ready.rig.upstream, ready.rig.port)
    rig.readings["crowd"] = {"bare relay": [{"failed": {"unfinished": 3}}]}
    assert door._keeping_up(rig, ready.there) == ready.there[:1]


def test_nginx_that_is_missing_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert nginx(Told(tmp_path, 1, 2)) is None


def test_a_program_gets_no_credentials(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    assert not [name for name in environment(tmp_path) if "KEY" in name or "TOKEN" in name]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_program_is_read_and_ended_with_what_it_started(tmp_path):
    code = (
        "import subprocess, sys; sum(range(10**6)); "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        "print(child.pid, flush=True); sys.stdin.read()"
    )
    with Program([sys.executable, "-c", code], tmp_path / "e", None, os.environ) as program:
        child = Path("/proc") / program.line().decode().strip()
        assert child.exists()
        eventually(lambda: program.cpu_s() > 0)
        assert program.resident_mb() > 5
    assert program.ended
    assert program.cpu_s() == program.resident_mb() == 0
    eventually(lambda: not (child / "exe").exists())  # nobody may have waited for it yet


def test_nobody_listens_on_a_port_of_an_ended_program(tmp_path):
    with Program([sys.executable, "-c", ""], tmp_path / "e", None, os.environ) as program:
        program.told(b"", 20)
        assert not listening(program, free_port(), 20)


def test_a_program_that_takes_too_long_is_said(tmp_path: Path):
    code = "import time; time.sleep(60)"
    with (
        Program([sys.executable, "-c", code], tmp_path / "e", None, os.environ) as program,
        pytest.raises(TimeoutError, match=r"no end after 0.1 s"),
    ):
        program.told(b"", 0.1)
