"""The supervised server, on the real C++ server and the tiny model."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.asking import ask, gone
from tests.support import faults, tinymodel
from tests.support.fixtures import StartServer
from tests.support.waiting import eventually
from ullage.core.errors import ConfigurationError, ProviderError
from ullage.embedded import Launch, Server, child, find_cached, server

ONE_THREAD = Launch(threads=1)
# A parent that starts a server, tells its pid, and then waits for its standard input to end.
PARENT = """
import os, sys
from pathlib import Path
from ullage.embedded import Launch, Server
server = Server(Path(sys.argv[1]), Launch(threads=1)).start()
print(server.pid, flush=True)
if sys.argv[2:] == ["fork"]:
    os.fork()
sys.stdin.read()
if sys.argv[2:] == ["exit"]:
    sys.exit(0)
os._exit(0)
"""


@contextlib.contextmanager
def parent(model: Path, *args: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run PARENT; yield it and the pid of its server."""
    command = [sys.executable, "-c", PARENT, str(model), *args]
    source = str(Path(server.__file__).parents[2])
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_it_answers_once_started_and_is_gone_once_stopped(tiny_model: Path) -> None:
    with Server(tiny_model, ONE_THREAD) as running:
        pid = running.pid
        assert running.alive
        assert ask(f"{running.root_url}/health") == (200, {"status": "ok"})
        assert running.base_url == f"{running.root_url}/v1"
    assert gone(pid)
    assert not running.alive


def test_it_can_be_stopped_twice_and_started_again(tiny_model: Path) -> None:
    running = Server(tiny_model, ONE_THREAD)
    first = running.start().pid
    assert running.start().pid == first, "a running server is not started again"
    running.stop()
    running.stop()
    assert running.start().pid != first
    running.stop()


def test_a_server_that_died_by_itself_can_be_started_again(tiny_model: Path) -> None:
    with Server(tiny_model, ONE_THREAD) as running:
        first = running.pid
        os.kill(first, signal.SIGKILL)
        eventually(lambda: not running.alive)
        assert running.start().pid != first
        assert ask(f"{running.root_url}/health")[0] == 200


def test_two_servers_run_at_once_on_ports_of_their_own(tiny_model: Path) -> None:
    with Server(tiny_model, ONE_THREAD) as one, Server(tiny_model, ONE_THREAD) as two:
        assert one.base_url != two.base_url
        assert ask(f"{one.root_url}/health")[0] == ask(f"{two.root_url}/health")[0] == 200


def test_before_the_start_there_is_neither_address_nor_pid_nor_log(tiny_model: Path) -> None:
    idle = Server(tiny_model)
    assert not idle.alive
    assert idle.log_tail() == ""
    with pytest.raises(ProviderError, match=r"not running; call start\(\)"):
        _ = idle.base_url
    with pytest.raises(ProviderError, match="not running"):
        _ = idle.pid


@pytest.mark.parametrize(
    ("launch", "per_slot"),
    [
        (Launch(window=2048), 2048),
        (Launch(window=2048, slots=4), 512),
        (Launch(window=2048, slots=4, unified_pool=True), 2048),
        (Launch(window=2000), 2048),
    ],
    ids=["one slot", "four slots share", "four slots, one pool", "rounded up to 256"],
)
def test_props_tell_the_launched_window_and_not_the_trained_one(
    llama_server: StartServer, launch: Launch, per_slot: int
) -> None:
    running = llama_server(launch)
    _, props = ask(f"{running.root_url}/props")
    _, models = ask(f"{running.base_url}/models")
    assert props["default_generation_settings"]["n_ctx"] == per_slot
    assert props["total_slots"] == launch.slots
    assert models["data"][0]["meta"]["n_ctx_train"] == 131072


@pytest.mark.parametrize("known", [True, False])
def test_a_window_beyond_the_trained_one_is_given_where_the_trained_one_is_known(
    llama_server: StartServer, tmp_path: Path, known: bool
) -> None:
    model = tinymodel.make(tmp_path / "short.gguf", trained_window=1024)
    launch = Launch(window=4096, trained=1024 if known else None)
    running = llama_server(launch, model)
    _, props = ask(f"{running.root_url}/props")
    assert props["default_generation_settings"]["n_ctx"] == (4096 if known else 1024)
    if known:
        long = {"messages": [{"role": "user", "content": "what is there? " * 400}]}
        status, answer = ask(f"{running.base_url}/chat/completions", long)
        assert status == 200
        assert answer["usage"]["prompt_tokens"] > 1024


def test_alias_template_and_key_reach_the_server(llama_server: StartServer) -> None:
    running = llama_server(Launch(alias="small", chat_template="{{ messages[0]['content'] }}!"))
    assert ask(f"{running.base_url}/models")[1]["data"][0]["id"] == "small"
    question = {"messages": [{"role": "user", "content": "hi"}]}
    assert ask(f"{running.root_url}/apply-template", question)[1] == {"prompt": "hi!"}

    locked = llama_server(Launch(api_key="not-for-everyone"))
    assert ask(f"{locked.root_url}/props")[0] == 401
    command_line = Path(f"/proc/{locked.pid}/cmdline").read_bytes()
    assert b"not-for-everyone" not in command_line


def test_it_listens_on_the_loopback_interface_only(tiny_server: Server) -> None:
    port = int(tiny_server.root_url.rpartition(":")[2])
    listening = [
        fields[1]
        for table in ("tcp", "tcp6")
        for line in Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]
        if (fields := line.split())[3] == "0A" and fields[1].endswith(f":{port:04X}")
    ]
    assert listening == [f"0100007F:{port:04X}"]


def test_a_web_page_of_another_origin_is_not_let_in(tiny_server: Server) -> None:
    host = tiny_server.root_url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", "/props", headers={"Origin": "http://page.example"})
    answer = connection.getresponse()
    assert answer.status == 200
    assert not answer.getheader("Access-Control-Allow-Origin")
    connection.close()


def test_openmp_threads_wait_passively_in_the_child(tiny_server: Server) -> None:
    environment = Path(f"/proc/{tiny_server.pid}/environ").read_bytes().split(b"\0")
    assert b"OMP_WAIT_POLICY=PASSIVE" in environment
    assert b"GGML_NO_BACKTRACE=1" in environment


def test_warnings_go_to_the_log_file_and_to_the_tail(tiny_model: Path, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "server.log"
    with Server(tiny_model, Launch(threads=1, log=log)) as running:
        assert " W srv " in running.log_tail()
    assert " W srv " in log.read_text(encoding="utf-8")


def test_a_log_that_cannot_be_written_is_the_callers_to_mend(
    tiny_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="cannot write the server's log"):
        Server(tiny_model, Launch(log=tmp_path)).start()


# ── starts that fail ─────────────────────────────────────────────────────────────────────────────


def test_a_busy_port_is_named_with_the_fix(tiny_model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        running = Server(tiny_model, Launch(port=port, threads=1))
        with pytest.raises(ProviderError, match=rf"port {port}.*the port is taken") as caught:
            running.start()
    assert "couldn't bind" in str(caught.value), "the tail of the log is in the message"
    assert not running.alive


def test_a_missing_model_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no model file at .*absent\.gguf"):
        Server(tmp_path / "absent.gguf").start()


def test_a_file_that_is_no_model_shows_the_servers_last_words(tmp_path: Path) -> None:
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"not a model")
    with pytest.raises(ProviderError, match="is not a GGUF; fetch it again") as caught:
        Server(junk, ONE_THREAD).start()
    assert "invalid magic characters" in str(caught.value)


def test_a_model_that_is_cut_short_says_so(tiny_model: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.gguf"
    short.write_bytes(tiny_model.read_bytes()[:-5000])
    with pytest.raises(ProviderError, match="cut short; fetch it again"):
        Server(short, ONE_THREAD).start()


def test_a_server_that_is_not_ready_in_time_is_stopped(tiny_model: Path) -> None:
    running = Server(tiny_model, Launch(start_timeout_s=1e-6, threads=1))
    with pytest.raises(ProviderError, match="has not loaded its model after 1e-06 s"):
        running.start()
    assert not running.alive


def test_without_the_extra_the_error_names_it(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'ullage\[all\]'"):
        Server(tiny_model).start()


def stand_in(folder: Path, script: str) -> str:
    """Return an interpreter that runs `script` in place of the real child."""
    path = folder / "interpreter"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_server_that_listens_but_stays_unhealthy_is_stopped(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faults.FaultServer({"/health": faults.loading()}) as fake:
        script = f"read options; echo {fake.root_url}; exec cat"
        monkeypatch.setattr(sys, "executable", stand_in(tmp_path, script))
        running = Server(tiny_model, Launch(start_timeout_s=0.2))
        with pytest.raises(ProviderError, match=r"listens but is not healthy after 0\.2 s"):
            running.start()
    assert not running.alive
    assert len(fake.requests) > 1


def test_a_server_that_dies_before_it_is_healthy_tells_its_exit_code(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faults.closed_port() as port:
        script = f"read options; echo http://127.0.0.1:{port}; echo too bad >&2; exit 7"
        monkeypatch.setattr(sys, "executable", stand_in(tmp_path, script))
        with pytest.raises(ProviderError, match=r"exit code 7(?s:.*)  too bad"):
            Server(tiny_model).start()


def test_an_interpreter_that_cannot_run_is_named(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    with pytest.raises(ProviderError, match=r"cannot start the embedded server with .*nowhere"):
        Server(tiny_model).start()


def test_a_child_that_reads_nothing_is_told_apart_by_its_exit_code(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", stand_in(tmp_path, "exec <&-; exit 3"))
    large = Launch(chat_template="x" * 1_000_000)
    with pytest.raises(ProviderError, match="exit code 3"):
        Server(tiny_model, large).start()


def test_health_takes_loading_and_refusing_for_not_yet() -> None:
    with faults.FaultServer({"/health": (faults.loading(), faults.of_json({}))}) as fake:
        host = fake.root_url.removeprefix("http://")
        assert not server._healthy(host)
        assert server._healthy(host)
    with faults.closed_port() as port:
        assert not server._healthy(f"127.0.0.1:{port}")


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_request_in_flight_does_not_hold_up_the_stop(tiny_model: Path) -> None:
    with Server(tiny_model, Launch(window=131072, threads=1)) as running:
        connection = http.client.HTTPConnection(
            running.root_url.removeprefix("http://"), timeout=60
        )
        wish = {"prompt": "a", "n_predict": 100_000, "ignore_eos": True, "stream": True}
        connection.request("POST", "/completion", json.dumps(wish))
        answer = connection.getresponse()
        assert answer.readline().startswith(b"data: ")
        pid = running.pid
        running.stop()
        assert gone(pid)
        with contextlib.suppress(http.client.IncompleteRead, ConnectionResetError):
            assert b"[DONE]" not in answer.read(), "the answer was cut, not finished"
        connection.close()


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace_time(tiny_model: Path) -> None:
    # An ignored signal stays ignored in the processes that are started meanwhile.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        running = Server(tiny_model, ONE_THREAD).start()
    finally:
        signal.signal(signal.SIGTERM, before)
    pid = running.pid
    began = time.monotonic()
    running.stop()
    assert gone(pid)
    assert time.monotonic() - began >= 2.0  # the grace was given; no upper bound on a busy machine


@pytest.mark.parametrize("args", [(), ("fork",)], ids=["alone", "with a fork that lives on"])
def test_the_server_dies_with_a_killed_parent(tiny_model: Path, args: tuple[str, ...]) -> None:
    with parent(tiny_model, *args) as (process, pid):
        assert not gone(pid)
        process.kill()
        process.wait()
        eventually(lambda: gone(pid))


def test_the_server_is_stopped_when_the_interpreter_exits(tiny_model: Path) -> None:
    with parent(tiny_model, "exit") as (process, pid):
        process.communicate("")
        assert process.returncode == 0
        eventually(lambda: gone(pid))


def test_a_fork_cannot_stop_the_server_of_its_parent(tiny_model: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from ullage.embedded import Launch, Server
with Server(Path(sys.argv[1]), Launch(threads=1)) as server:
    fork = os.fork()
    if fork == 0:
        server.stop()
        os._exit(0)
    os.waitpid(fork, 0)
    print(server.alive)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tiny_model)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(server.__file__).parents[2])},
    )
    assert done.stdout.strip() == "True"


def test_stop_from_another_thread_ends_a_start(tiny_model: Path) -> None:
    running = Server(tiny_model, ONE_THREAD)
    ended = threading.Event()

    def keep_stopping() -> None:
        while not ended.is_set():
            running.stop()

    stopper = threading.Thread(target=keep_stopping)
    stopper.start()
    try:
        for _ in range(5):
            with contextlib.suppress(ProviderError):
                running.start()
    finally:
        ended.set()
        stopper.join()
        running.stop()
    assert not running.alive


# ── the child alone ──────────────────────────────────────────────────────────────────────────────


def run_child(options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-P", child.__file__],
        input=options,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_child_imports_nothing_of_ullage() -> None:
    done = run_child("")
    assert done.returncode == 1
    assert "ended before the launch options came" in done.stderr
    imported = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]
    assert "threading" in imported
    assert not [name for name in imported if name.startswith("ullage.")]


def test_the_child_refuses_to_serve_for_a_parent_that_is_gone() -> None:
    done = run_child('{"parent": 0}\n')
    assert done.returncode == 1
    assert "the process that asked for this server is gone" in done.stderr


# ── the real model, if `make demo` has fetched it ────────────────────────────────────────────────


@pytest.mark.smollm2
def test_smollm2_chats() -> None:
    model = find_cached("smollm2-135m")
    if model is None:
        pytest.skip("SmolLM2 is not in the cache; `make demo` fetches it")
    with Server(model, Launch(window=2048)) as running:
        question = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16}
        status, answer = ask(f"{running.base_url}/chat/completions", question)
        assert status == 200
        assert answer["choices"][0]["message"]["content"]
        _, props = ask(f"{running.root_url}/props")
        assert props["default_generation_settings"]["n_ctx"] == 2048
