"""`ullage serve`: what is configured, what is said, and how it starts, reloads and ends."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import tomllib
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.faults import FaultServer, drip, of_json
from tests.support.waiting import eventually
from ullage.cli import logs, serve
from ullage.cli.main import main, parser
from ullage.config.serving import Serve, Upstream
from ullage.core.compaction.policy import Policy
from ullage.core.errors import ConfigurationError
from ullage.storage.place import PROXY, default_url, find_new_folder

TOKEN = "sentinel-token-0123456789"
FILE = """
# a comment
[serve]
port = 9000
usage = "inject"

[serve.tokens]
alice = "$ALICE"

[[serve.upstreams]]
name = "cloud"
base_url = "https://api.openai.com"

[[serve.upstreams]]
name = "local"
base_url = "http://127.0.0.1:11434"

[[serve.rules]]
key = "alice"
window = 5000
"""
ANSWER = {
    "id": "x",
    "object": "chat.completion",
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
}
ASKED = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
MODELS = {"object": "list", "data": [{"id": "m", "object": "model"}]}


def given(*words: str) -> argparse.Namespace:
    return parser("serve").parse_args(["serve", *words])


def read(*words: str, environment: Mapping[str, str] | None = None, **more: Any) -> Serve:
    return serve.read(given(*words), environment or {}, **more)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "serve.toml"
    path.write_text(FILE)
    return path


# ── what is configured ──────────────────────────────────────────────────────────────────────────


def test_one_argument_is_enough():
    found = read("--upstream", "http://127.0.0.1:8080")
    assert found == Serve(
        (Upstream("127.0.0.1", "http://127.0.0.1:8080"),), store=default_url(PROXY)
    )


@pytest.mark.parametrize(
    ("word", "name", "url"),
    [
        ("big=http://h:1", "big", "http://h:1"),
        ("http://h:1/a=b", "h", "http://h:1/a=b"),
        ("http://[::1]:8080", "1", "http://[::1]:8080"),
        ("https://api.openai.com/v1", "api.openai.com", "https://api.openai.com/v1"),
    ],
)
def test_an_upstream_is_named_by_its_host_or_by_you(word: str, name: str, url: str):
    (upstream,) = read("--upstream", word).upstreams
    assert (upstream.name, upstream.base_url) == (name, url)


def test_two_upstreams_of_one_host_have_two_names():
    found = read("--upstream", "http://h:1", "--upstream", "http://h:2")
    assert [upstream.name for upstream in found.upstreams] == ["h", "h-2"]


def test_an_argument_wins_over_the_file(file: Path):
    words = ["--config", str(file), "--upstream", "x=http://h", "--port", "1", "--passive"]
    more = ["--host", "0.0.0.0", "--store", "memory:", "--num-ctx", "8192", "--token-env", "T"]
    rules = ["--policy", "advisory", "--window", "7000", "--observe", "--recall-tools"]
    environment = {"ALICE": TOKEN, "T": TOKEN + "2"}
    found = read(*words, *more, *rules, environment=environment)
    assert [upstream.name for upstream in found.upstreams] == ["x", "cloud", "local"]
    assert (found.port, found.host, found.store) == (1, "0.0.0.0", "memory:")
    assert (found.usage, found.num_ctx) == ("passive", 8192)
    assert found.tokens == {"alice": TOKEN, "client": TOKEN + "2"}
    rule = found.rule("m", "alice")
    assert (rule.policy, rule.window, rule.observe) == (Policy.advisory(), 7000, True)
    assert rule.recall_tools
    assert read("--config", str(file), environment=environment).rule("m", "alice").window == 5000


def test_a_variable_wins_over_the_file_and_an_option_over_both(file: Path):
    environment = {"ALICE": TOKEN, "ULLAGE_SERVE__PORT": "9001", "ULLAGE_POLICY": "off"}
    found = read("--config", str(file), environment=environment)
    assert (found.port, found.policy) == (9001, Policy.off())
    assert found.rule("m", None).policy == Policy.off()
    own = read("--config", str(file), "--port", "9002", environment=environment)
    assert own.port == 9002
    named = read("--config", str(file), "--policy", "ladder", environment=environment)
    assert named.rule("m", None).policy == Policy.ladder()
    wrong = {"ALICE": TOKEN, "ULLAGE_SERVE__PORT": "high"}
    with pytest.raises(ConfigurationError, match=r"^\$ULLAGE_SERVE__PORT: serve\.port is 'high'"):
        read("--config", str(file), environment=wrong)


def test_the_demo_stands_behind_all_others_and_its_window_is_its_own():
    demo = Upstream("demo", "http://127.0.0.1:5/v1")
    found = read("--upstream", "http://h", "--window", "2048", demo=demo)
    assert [upstream.name for upstream in found.upstreams] == ["h", "demo"]
    assert found.rules == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("port = 1", r"line 1: unknown setting 'port'; did you mean 'serve\.port'"),
        ("serve = 5", r"line 1: serve is 5, expected a table"),
        ("", r"^ullage serve: no upstream is named"),
        ("[serve", "is not valid TOML"),
        ("[serve]\n\nprot = 5", r"line 3: unknown setting 'serve\.prot'; did you mean 'port'"),
        ("[serve]\nport = 'x'", r"line 2: serve\.port is 'x', expected a whole number"),
        (
            f"{FILE}policy = 'x'",
            r"line 21: serve\.rules\[0\]\.policy is 'x', expected one of ladder",
        ),
        (FILE.replace("https://api", "api"), r"line 12: base_url of the upstream 'cloud'"),
        (
            FILE.replace("window", "windows"),
            r"line 20: unknown setting 'serve\.rules\[0\]\.windows'",
        ),
        (
            FILE.replace("$ALICE", "$MISSING"),
            r"line 8: serve\.tokens\.alice is \$MISSING, and that",
        ),
        (FILE.replace("$ALICE", "short"), r"line 8: the token 'alice' is no secret"),
        (
            "[serve]\nhost = '0.0.0.0'\n[[serve.upstreams]]\nname='u'\nbase_url='http://h'",
            "no token",
        ),
    ],
)
def test_a_broken_file_is_refused_with_its_line(file: Path, text: str, why: str):
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=why) as caught:
        read("--config", str(file), environment={"ALICE": TOKEN})
    assert "serve.toml" in str(caught.value) or not text
    assert "sentinel" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, capsys: Any):
    assert main(["serve", "--config", str(tmp_path / "none.toml")]) == 1
    assert (
        "none.toml cannot be read: there is no such file; check its path" in capsys.readouterr().err
    )
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert main(["serve", "--config", str(tmp_path / "bytes.toml")]) == 1
    assert "bytes.toml cannot be read: line 1 is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "no upstream is named: give --upstream URL"),
        (["--upstream", "ftp://h"], "--upstream: base_url of the upstream 'h' is no plain http or"),
        (["--upstream", "http://h", "--host", "0.0.0.0"], "no token is set"),
        (["--upstream", "http://h", "--token-env", "NOT_SET"], "variable is not set"),
        (
            ["--upstream", "http://h", "--port", "99999"],
            "--port: serve.port is 99999, expected a whole number from 0 to 65,535",
        ),
        (["--upstream", "http://user:sentinel@h"], "without a user"),
    ],
)
def test_what_cannot_work_does_not_start(words: list[str], why: str, capsys: Any):
    assert main(["serve", *words]) == 1
    err = capsys.readouterr().err
    assert why in err
    assert "sentinel" not in err


# ── what is said ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("host", "root"),
    [
        ("127.0.0.1", "http://127.0.0.1:8790"),
        ("0.0.0.0", "http://127.0.0.1:8790"),
        ("::1", "http://[::1]:8790"),
        ("[::1]", "http://[::1]:8790"),
        ("::", "http://[::1]:8790"),
        ("llm.example", "http://llm.example:8790"),
    ],
)
def test_every_client_has_a_line_to_paste(host: str, root: str):
    upstream = Upstream("local", "http://127.0.0.1:8080/v1", "sentinel-key-0123456789")
    said = "\n".join(serve.greeting(Serve((upstream,), host=host, tokens={"a": TOKEN}), 8790))
    for line in (
        f"export OPENAI_BASE_URL={root}/v1",
        f"export ANTHROPIC_BASE_URL={root}",
        f"export OLLAMA_HOST={root}",
        f"curl {root}/v1/models",
        f"ANTHROPIC_BASE_URL={root} claude",
        f"OPENAI_API_BASE={root}/v1 aider",
        "local (http://127.0.0.1:8080)",
        "present a token as their API key: there are a",
    ):
        assert line in said
    assert "sentinel" not in said


def test_the_line_for_codex_is_toml_that_a_shell_hands_on_whole():
    (line,) = [text for name, text in serve.clients("http://127.0.0.1:1") if name == "Codex CLI"]
    settings = shlex.split(line)[2::2]
    read = tomllib.loads(settings[1])
    assert settings[0] == "model_provider=ullage"
    assert read["model_providers"]["ullage"]["base_url"] == "http://127.0.0.1:1/v1"


def test_log_lines_hold_no_secret_of_any_configuration_so_far():
    discreet = logs.Discreet()
    discreet.learn(Serve((Upstream("u", "http://h", "sentinel-key-0123456789"),)))
    discreet.learn(Serve((Upstream("u", "http://h"),), tokens={"a": TOKEN}))
    error = ValueError(f"sent {TOKEN}")
    record = logging.LogRecord(
        *("ullage", logging.ERROR, "f", 1, "with %s", ("sentinel-key-0123456789",)),
        exc_info=(ValueError, error, None),
    )
    line = discreet.format(record)
    assert "ValueError" in line
    assert "sentinel" not in line


# ── serving ─────────────────────────────────────────────────────────────────────────────────────


def free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def got(port: int, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def up(port: int) -> bool:
    try:
        return bool(got(port, "/healthz"))
    except OSError:
        return False


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[list[BaseException]]:
    """Run `work` in a thread while this one serves, and end the server after it."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            failed.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=run)
    thread.start()
    yield failed
    thread.join(20)
    assert not failed, failed


def served(work: Callable[[int], None], *words: str) -> int:
    """Serve in this thread until `work`, in another one, is done with the port."""
    port = free()

    def done() -> None:
        eventually(lambda: up(port))
        work(port)

    # a signal that comes before the server is there must not end the tests
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with beside(done):
            return main(["serve", "--port", str(port), "--store", "memory:", *words])
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_request_goes_through_and_a_signal_ends_it_in_order(capsys: Any):
    routes = {"POST /v1/chat/completions": of_json(ANSWER), "GET /v1/models": of_json(MODELS)}
    with FaultServer(routes) as server:

        def work(port: int) -> None:
            assert got(port, "/v1/chat/completions", ASKED) == ANSWER
            assert got(port, "/ullage/sessions")["total"] == 1
            assert got(port, "/readyz")["status"] == "ready"

        assert served(work, "--upstream", server.base_url) == 0
    err = capsys.readouterr().err
    assert "export OPENAI_BASE_URL=http://127.0.0.1:" in err
    assert not any(type(h.formatter) is logs.Discreet for h in logging.getLogger().handlers)


def test_a_hangup_reads_the_configuration_again_and_a_broken_one_changes_nothing(
    tmp_path: Path, capsys: Any
):
    file = tmp_path / "serve.toml"
    told = capsys.readouterr
    heard: list[str] = []

    def said(text: str) -> bool:
        heard.append(told().err)
        return text in "".join(heard)

    def configured(url: str, more: str = "") -> str:
        return f"[serve]\n{more}\n[[serve.upstreams]]\nname = 'u'\nbase_url = '{url}'\n"

    routes = {"GET /v1/models": of_json(MODELS)}
    other = {"GET /v1/models": of_json({"object": "list", "data": []})}
    with FaultServer(routes) as first, FaultServer(other) as second:
        file.write_text(configured(first.base_url))

        def work(port: int) -> None:
            assert got(port, "/v1/models") == MODELS
            file.write_text("[serve]\nprot = 1\n")
            os.kill(os.getpid(), signal.SIGHUP)
            eventually(lambda: said("stays as it was: "))
            assert got(port, "/v1/models") == MODELS
            file.write_text(configured(second.base_url, "idle_s = 7"))
            os.kill(os.getpid(), signal.SIGHUP)
            eventually(lambda: said("not before the next start: idle_s"))
            assert got(port, "/v1/models")["data"] == []

        assert served(work, "--config", str(file)) == 0
    assert "did you mean 'port'" in "".join(heard)


def test_traces_are_made_where_they_are_asked_for():
    with FaultServer({"POST /v1/chat/completions": of_json(ANSWER)}) as server:
        served(
            lambda port: got(port, "/v1/chat/completions", ASKED),
            *("--upstream", server.base_url, "--traces"),
        )


def test_a_port_that_is_taken_is_named(capsys: Any):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["--upstream", "http://h", "--port", str(port), "--store", "memory:"]
        assert main(["serve", *words]) == 1
    assert f"cannot listen on 127.0.0.1, port {port}" in capsys.readouterr().err


def test_an_address_of_the_sixth_protocol_is_bound_as_one():
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        with serve.bind_socket("[::1]", 0) as listening:
            assert listening.family == socket.AF_INET6
    except ConfigurationError as error:
        pytest.skip(f"no IPv6 here: {error}")


def test_a_folder_that_a_store_makes_is_told_of(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path}/new/inside/p.db"
    assert find_new_folder(store) == tmp_path / "new" / "inside"
    assert find_new_folder(f"sqlite:{tmp_path}/p.db") is None
    assert find_new_folder(default_url(PROXY)) is find_new_folder("memory:") is None


def test_a_store_that_cannot_be_opened_stops_the_start(tmp_path: Path, capsys: Any):
    (tmp_path / "file").write_text("")
    store = f"sqlite:{tmp_path}/file/inside.db"
    words = ["--upstream", "http://h", "--port", "0", "--store", store]
    assert main(["serve", *words]) == 1
    assert "inside.db" in capsys.readouterr().err


def alone(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def test_without_the_extra_it_is_named():
    code = (
        "import sys; sys.modules['httptools'] = None\n"
        "from ullage.cli.main import main\n"
        "sys.exit(main(['serve', '--upstream', 'http://h']))"
    )
    done = alone(code)
    assert done.returncode == 1
    assert "pip install 'ullage[all]'" in done.stderr


def test_without_uvloop_the_standard_loop_serves():
    code = (
        "import sys; sys.modules['uvloop'] = None\n"
        "from ullage.cli import logs, serve; print(serve.find_loop())"
    )
    done = alone(code)
    assert done.stdout.strip() == "None"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stream_under_way_comes_to_its_end_before_the_process_does(number: int):
    events = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n' * 20
    events += b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    slow = drip(events, block=200, pause_s=0.05)
    answer = type(slow)(200, slow.blocks, "text/event-stream", slow.pause_s)
    port = free()
    with FaultServer({"POST /v1/chat/completions": answer}) as server:
        words = ["--upstream", server.base_url, "--port", str(port), "--store", "memory:"]
        process = subprocess.Popen(
            [sys.executable, "-m", "ullage.cli.main", "serve", *words, "--passive"],
            stderr=subprocess.PIPE,
        )
        try:
            eventually(lambda: up(port), within_s=30)
            asked = json.dumps({**ASKED, "stream": True}).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/v1/chat/completions",
                asked,
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=20) as stream:
                first = stream.read(10)
                process.send_signal(number)
                assert first + stream.read() == events
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.communicate()


# ── the page ────────────────────────────────────────────────────────────────────────────────────


PAGE = (Path(__file__).parents[2] / "docs" / "proxy.md").read_text("utf-8")


def test_the_example_of_the_page_works(tmp_path: Path):
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "serve.toml").write_text(text)
    environment = {"ALICE_TOKEN": TOKEN, "OPENAI_API_KEY": "sk-secret"}
    found = read("--config", str(tmp_path / "serve.toml"), environment=environment)
    assert found.rule("any", "alice").policy == Policy.advisory()
    assert found.rule("qwen3", None).policy == replace(
        Policy.ladder(), tail_share=0.4, min_output=512
    )
    assert [found.upstreams[0].serves(m) for m in ("gpt-4o", "o3-mini", "qwen3")] == [1, 1, 0]


def test_the_page_shows_the_lines_that_are_printed():
    for name, line in serve.clients("http://127.0.0.1:8790"):
        assert f"| {name} | `{line.split(chr(123))[0]}" in PAGE


def test_the_demo_serves_a_model_of_its_own(tiny_model: Path, capsys: Any):
    asked = {"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": "hello"}]}

    def work(port: int) -> None:
        assert got(port, "/v1/chat/completions", asked)["usage"]["prompt_tokens"] > 0
        (held,) = got(port, "/ullage/sessions")["sessions"]
        assert (held["upstream"], held["window"]) == ("demo", 512)

    assert served(work, "--demo", str(tiny_model), "--window", "512") == 0
    assert "a window of 512 tokens" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["uvicorn", "httptools", "jinja2", "starlette"])
def test_a_package_that_is_missing_is_told_before_anything_listens(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigurationError, match=rf"ullage serve needs .*{name}.*ullage\["):
        serve.load_application()
