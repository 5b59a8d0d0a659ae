"""`ullage worker`, `submit` and `queue` as a user calls them, on the file of one machine."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.agent.thinking import Thinking
from tests.pages.test_alone import watching
from tests.pages.watching import JSON, read
from tests.proxy.sockets import ask, request
from ullage.cli.main import main
from ullage.workers import JobQueue

pytestmark = pytest.mark.skipif(os.name != "posix", reason="tools need POSIX")


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "state").mkdir()
    return f"sqlite:{tmp_path}/state/log.db"


@pytest.fixture(scope="module")
def model():
    with Thinking(()) as server:
        yield server


def work(store: str, *words: str, when: Any) -> int:
    """Run a worker in this thread until `when` has returned in another."""

    def watch() -> None:
        try:
            when()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        return main(["worker", "--store", store, "--lease-s", "3", *words])
    finally:
        thread.join()


def serve(model: Thinking, folder: Path) -> list[str]:
    return ["--base-url", model.base_url, "--model", "m", "--workspace", str(folder), "--no-tools"]


def test_a_turn_is_submitted_run_and_shown(
    store: str, tmp_path: Path, model: Thinking, capsys: pytest.CaptureFixture[str]
):
    given = ["--store", store]
    assert main(["submit", "Do job one.", "--session", "s", "--key", "k", *given]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("session s; a worker runs the job. Start one where none runs: ")
    assert f"ullage worker --store {store} --base-url URL --model MODEL\n" in err
    assert main(["submit", "Do job one.", "--session", "s", "--key", "k", "--json", *given]) == 0
    assert json.loads(capsys.readouterr().out)["job"] == out.strip()
    assert main(["queue", *given]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"default\s+1 of 1,000\s+0 of 8", shown)
    assert "no worker" in shown
    came: list[int] = []

    def wait() -> None:
        with JobQueue(store) as queue:
            row = queue.find(out.strip())
            assert row is not None
            assert queue.ticket(row).result(60).ok
        came.append(main(["submit", "Do job two.", "--session", "s", "--wait", *given]))
        came.append(main(["submit", "Do job three.", "--session", "t", "--events", *given]))
        came.append(main(["submit", "Do job four.", "--agent", "x", "--wait", "--json", *given]))
        came.append(main(["queue", "--json", *given]))

    assert work(store, *serve(model, tmp_path), when=wait) == 0
    assert came == [0, 0, 6, 0]
    said = capsys.readouterr()
    assert "The job two is done.\n" in said.out
    events = [json.loads(line) for line in said.out.splitlines() if line.startswith('{"v"')]
    assert events[0]["type"] == "turn_started"
    assert (events[-1]["kind"], events[-1]["text"]) == ("ended", "The job three is done.")
    assert "this worker has no agent 'x'" in said.err
    assert "drains: takes no job more" in said.err
    assert main(["queue", *given]) == 0
    assert "done" in capsys.readouterr().out


def test_each_line_of_a_worker_is_json_and_a_jobs_line_names_it(
    store: str, tmp_path: Path, model: Thinking, capsys: pytest.CaptureFixture[str]
):
    assert main(["submit", "Do job one.", "--session", "s", "--store", store]) == 0
    job = capsys.readouterr().out.strip()

    def wait() -> None:
        with JobQueue(store) as queue:
            row = queue.find(job)
            assert row is not None
            assert queue.ticket(row).result(60).ok

    words = [*serve(model, tmp_path), "--log-format", "json", "--log-level", "debug"]
    assert work(store, *words, when=wait) == 0
    lines = capsys.readouterr().err
    found = [json.loads(line) for line in lines.splitlines()]
    assert [one["event"] for one in found if one["room"] == "serve"][0::2] == ["started", "ended"]
    (ended,) = [one for one in found if one["event"] == "job"]
    assert (ended["job"], ended["session"], ended["state"]) == (job, "s", "done")
    assert "Do job one" not in lines


def test_limits_are_set_and_jobs_cancelled(store: str, capsys: pytest.CaptureFixture[str]):
    given = ["--store", store]
    assert main(["queue", "--tenant", "a", "--most-waiting", "1", *given]) == 0
    assert main(["submit", "Do job one.", "--tenant", "a", *given]) == 0
    job = capsys.readouterr().out.splitlines()[-1]
    assert main(["submit", "Do job two.", "--tenant", "a", *given]) == 1
    assert "1 jobs of tenant a wait, and 1 may: submit again later" in capsys.readouterr().err
    assert main(["queue", "--cancel", job, *given]) == 0
    assert main(["queue", "--cancel", job, *given]) == 0
    assert "had ended: cancelled" in capsys.readouterr().err
    assert main(["queue", "--cancel", "nothing", *given]) == 1
    assert main(["queue", "--most-running", "2", *given]) == 1
    assert main(["queue", "--tenant", "a", "--most-running", "2", *given]) == 0
    assert "0 of 2" in capsys.readouterr().out


def test_the_numbers_of_a_worker_can_be_scraped(store: str, model: Thinking, tmp_path: Path):
    pages: list[str] = []
    free = _find_port()

    def scrape() -> None:
        root = f"http://127.0.0.1:{free}"
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                urllib.request.urlopen(f"{root}/metrics", timeout=5).close()
                break
            except OSError:
                threading.Event().wait(0.1)
        with JobQueue(store) as queue:
            assert queue.submit("s", "Do job one.", tenant="a").result(60).ok
        pages.append(urllib.request.urlopen(f"{root}/metrics", timeout=5).read().decode())
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{root}/other", timeout=5)

    words = [*serve(model, tmp_path), "--metrics-port", str(free)]
    assert work(store, *words, when=scrape) == 0
    assert 'ullage_jobs_total{outcome="done"} 1' in pages[0]
    assert 'ullage_queue_jobs{tenant="a",state="waiting"} 0' in pages[0]
    assert 'ullage_queue_workers{state="working"} 1' in pages[0]
    assert "ullage_jobs_under_way 0" in pages[0]


@pytest.mark.parametrize("taken", [True, False])
def test_a_port_of_metrics_that_cannot_be_had_is_named(
    store: str, model: Thinking, tmp_path: Path, taken: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1] if taken else 94610
        words = [*serve(model, tmp_path), "--metrics-port", str(port)]
        assert main(["worker", "--store", store, *words]) == 1
    told = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1, port {port}" in told
    assert "choose another by --metrics-port" in told


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tests.nowhere:agents", "cannot be loaded"),
        ("tests.cli.test_worker:NOTHING", "expected an Agent, or a mapping"),
    ],
)
def test_agents_that_are_none_are_refused(
    store: str, name: str, said: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["worker", "--store", store, "--agents", name]) == 1
    assert said in capsys.readouterr().err


NOTHING: tuple[()] = ()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--slots", "0"], "slots of a worker is 1 or more"),
        (["--lease-s", "0"], "lease_s of a worker is 0.5 or more"),
        (["--engine", "dbos"], "does not work in"),
    ],
)
def test_a_worker_that_cannot_be_is_refused(
    store: str,
    tmp_path: Path,
    model: Thinking,
    words: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
):
    assert main(["worker", "--store", store, *serve(model, tmp_path), *words]) == 1
    assert said in capsys.readouterr().err


def test_a_queue_is_a_page(tmp_path: Path):
    store = f"sqlite:{tmp_path / 'log.db'}"
    with JobQueue(store) as queue:
        queue.submit("cellar", "What is in the cellar?", tenant="house")
        queue.log.create("cellar", 0.0)
    with watching(tmp_path, "--queue") as port:
        told = read(port, "/ullage/queue")
        assert [row["name"] for row in told["tenants"]] == ["house"]
        (job,) = told["jobs"]
        assert (job["state"], job["job"]["session"], job["job"]["text"]) == (
            "waiting",
            "cellar",
            "",
        )
        page = ask(port, request("GET", "/ullage/queue", b"", "accept: text/html"))
        assert "cellar" in page.body.decode()
        assert "What is in" not in page.body.decode()
    with watching(tmp_path) as port:
        assert ask(port, request("GET", "/ullage/queue", b"", JSON)).status == 404


def test_looking_at_a_queue_that_is_not_there_makes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    url = f"sqlite:{tmp_path / 'none.db'}"
    for words in ((), ("--cancel", "j"), ("--json",)):
        assert main(["queue", "--store", url, *words]) == 1
    assert "ullage submit begins one" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(["queue", "--store", "memory:"]) == 1
