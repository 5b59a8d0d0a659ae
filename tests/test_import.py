"""`import ullage` in a fresh interpreter: nothing heavy, no I/O, and all the names."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ullage

HEAVY = (
    "aiohttp", "anthropic", "apsw", "asyncio", "concurrent.futures", "httpx", "httpx2", "msgspec",
    "openai", "pydantic", "socket", "sqlite3", "ssl", "tiktoken", "toktok",
)  # fmt: skip

WATCH = """
import sys

seen = []
watching = True


def hook(event, args):
    if watching and event != "import":
        seen.append([event, [str(a) for a in args]])


sys.addaudithook(hook)
"""

REPORT = """
watching = False
import json
import threading

print(json.dumps({"events": seen, "modules": sorted(sys.modules),
                  "threads": threading.active_count()}))
"""


def fresh(*lines: str) -> dict[str, Any]:
    """Run lines in a fresh interpreter under an audit hook; return what they did."""
    code = "\n".join([WATCH, *lines, REPORT])
    src = Path(ullage.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(src), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def imported() -> dict[str, Any]:
    return fresh("import ullage")


def test_importing_pulls_in_nothing_heavy(imported) -> None:
    assert "ullage" in imported["modules"]
    assert [name for name in HEAVY if name in imported["modules"]] == []


def test_importing_pulls_in_no_room(imported) -> None:
    assert [name for name in imported["modules"] if name.startswith("ullage.")] == []


def test_importing_reads_its_own_modules_and_does_nothing_else(imported) -> None:
    looks = {"open", "os.listdir", "os.scandir"}
    runs = {"compile", "exec", "marshal.loads"}
    reflects = {
        "object.__getattr__",
        "object.__setattr__",
        "sys._getframe",
        "sys._getframemodulename",
    }
    allowed = looks | runs | reflects
    assert {event for event, _ in imported["events"]} <= allowed
    opened = [args for event, args in imported["events"] if event == "open"]
    assert opened, "the hook sees what is opened"
    for path, mode, _ in opened:
        assert Path(path).suffix in (".py", ".pyc"), path
        assert mode in ("r", "rb", "None"), (path, mode)


def test_the_hook_of_these_tests_sees_files_sockets_and_processes() -> None:
    seen = fresh(
        "import os, socket, subprocess",
        "open(os.devnull, 'w').close()",
        "socket.socket().close()",
        "subprocess.run([sys.executable, '--version'], check=True, stdout=subprocess.DEVNULL)",
    )
    events = {event for event, _ in seen["events"]}
    assert {"socket.__new__", "subprocess.Popen"} <= events
    assert next(args[1] for event, args in seen["events"] if args[0] == "/dev/null") == "w"


LOOP = (
    *("Agent", "Ended", "Live", "RetentionRules", "Session", "agent", "apply_retention"),
    *("list_old_sessions", "plan_retention", "purge_sessions"),
    *("JobQueue", "Ticket", "TurnWorker"),
)
"""Names of the agent's and the workers' rooms, which cannot do without an event loop."""


def test_loading_every_name_starts_no_thread_and_opens_no_connection() -> None:
    seen = fresh("import ullage", "from ullage import *", "guard = Guard('gpt-4o')")
    assert seen["threads"] == 1
    events = {event for event, _ in seen["events"]}
    assert not [e for e in events if e.startswith(("socket.", "subprocess.", "_thread."))]
    heavy = ("aiohttp", "httpx", "httpx2", "openai", "pydantic", "toktok", "apsw", "psycopg")
    assert [name for name in heavy if name in seen["modules"]] == []


def test_only_the_turn_loop_loads_an_event_loop() -> None:
    load = f"[getattr(ullage, name) for name in ullage.__all__ if name not in {LOOP}]"
    seen = fresh("import ullage", load, "guard = ullage.Guard('gpt-4o')")
    assert [name for name in ("asyncio", "ssl") if name in seen["modules"]] == []


def test_a_proxy_loads_its_pages_and_what_they_show_when_the_first_is_asked_for() -> None:
    seen = fresh("from ullage.cli import serve", "serve.load_application()")
    assert "ullage.proxy.app" in seen["modules"]
    later = ("jinja2", "starlette.routing", "ullage.agent", "ullage.importers", "ullage.tools")
    assert [name for name in later if name in seen["modules"]] == []


def test_dir_is_the_public_names() -> None:
    assert dir(ullage) == sorted(ullage.__all__)
    assert len(set(ullage.__all__)) == len(ullage.__all__)


@pytest.mark.parametrize("name", ullage.__all__)
def test_a_public_name_loads_and_says_what_it_is(name) -> None:
    value = getattr(ullage, name)
    assert getattr(ullage, name) is value
    assert (inspect.getdoc(value) or "").strip(), name
    if not inspect.ismodule(value):
        assert value.__module__.startswith("ullage."), name


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ullage.nothing


def test_every_error_of_the_tree_is_public() -> None:
    errors = {
        name
        for name, value in vars(ullage.errors).items()
        if inspect.isclass(value) and issubclass(value, ullage.UllageError)
    }
    assert errors <= set(ullage.__all__)
