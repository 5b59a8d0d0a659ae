"""`ullage with`: what a client is told, how it runs and ends, and what is told and left of it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.faults import FaultServer, closed_port, of_json
from tests.support.waiting import eventually
from ullage.cli import clients, with_
from ullage.cli.main import main, parser
from ullage.cli.receipt import (
    EndListener,
    RunFigures,
    write_failures,
    write_receipt,
    write_warnings,
)
from ullage.core.errors import ConfigurationError

CLIENT = """#!{python}
# A client: says what it was told, asks what ASK holds, looks at the proxy's books, and ends.
import json, os, sys, urllib.error, urllib.request

def post(url, body):
    headers = {{"content-type": "application/json"}}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code

told = {{"words": sys.argv[1:], "environ": dict(os.environ), "statuses": [], "files": {{}}}}
for word in sys.argv[1:]:
    if os.path.isfile(word):
        told["files"][word] = open(word).read()
for path, body in json.loads(os.environ.get("ASK", "[]")):
    base = os.environ["ANTHROPIC_BASE_URL"]
    told["statuses"].append(post(base + path, body))
if told["statuses"]:
    with urllib.request.urlopen(os.environ["ANTHROPIC_BASE_URL"] + "/ullage/sessions") as answer:
        told["books"] = json.load(answer)
with open(os.environ["TOLD"], "w") as file:
    json.dump(told, file)
sys.exit(int(os.environ.get("CODE", "0")))
"""
CHAT = "/v1/chat/completions"
ANSWER = {
    "id": "x", "object": "chat.completion", "model": "gpt-4o-mini",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 900, "completion_tokens": 1, "total_tokens": 901},
}  # fmt: skip
MODELS = {"object": "list", "data": [{"id": "tiny", "object": "model"}]}
ROUTES = {f"POST {CHAT}": of_json(ANSWER), "GET /v1/models": of_json(MODELS)}
VARIABLES = (
    "OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL",
    "ANTHROPIC_API_BASE", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OLLAMA_HOST",
    "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY", "CLAUDE_CONFIG_DIR",
    "OPENCODE_CONFIG_CONTENT", *clients.PROXIES,
)  # fmt: skip
Capture = pytest.CaptureFixture[str]


class Bench:
    """Fake clients on PATH, and what the last one was told."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.left = folder / "bin", folder / "left"
        self._told = folder / "told.json"
        self.bin.mkdir()
        self.left.mkdir()
        for name in ("claude", "codex", "pi", "opencode", "llm", "agent"):
            path = self.bin / name
            path.write_text(CLIENT.format(python=sys.executable))
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        self.variables = {
            "PATH": f"{self.bin}{os.pathsep}{os.defpath}",
            "TOLD": str(self._told),
            "TMPDIR": str(self.left),
            "HOME": str(folder),
        }

    @property
    def told(self) -> Mapping[str, Any]:
        """What the client saw."""
        found: dict[str, Any] = json.loads(self._told.read_text())
        return found


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", None)
    return made


@pytest.fixture(scope="module")
def upstream() -> Iterator[FaultServer]:
    with FaultServer(ROUTES) as server:
        yield server


def long_talk(turns: int) -> list[dict[str, str]]:
    said = [{"role": "user", "content": "Never touch the cellar door."}]
    for turn in range(turns):
        said.append({"role": "assistant", "content": f"answer {turn} " + "cask and hoop " * 40})
        said.append({"role": "user", "content": f"question {turn} " + "stave and croze " * 40})
    return said


def ask(*sizes: int, path: str = CHAT) -> str:
    return json.dumps([[path, {"model": "gpt-4o-mini", "messages": long_talk(n)}] for n in sizes])


def port_of(told: Mapping[str, Any]) -> int:
    return int(told["environ"]["ANTHROPIC_BASE_URL"].rpartition(":")[2])


def is_open(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


# ── the run ─────────────────────────────────────────────────────────────────────────────────────


def test_the_receipt_says_what_the_books_say_and_the_exit_code_is_the_clients(
    bench: Bench, upstream: FaultServer, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.setenv("ASK", ask(1, 6, 8))
    monkeypatch.setenv("CODE", "7")
    words = ["--window", "1500", "agent", "--upstream", upstream.root_url, "-p", "--set"]
    assert main(["with", *words]) == 7
    told, err = bench.told, capfd.readouterr().err
    assert told["words"] == ["-p", "--set"]
    assert told["statuses"] == [200, 200, 200]
    books = told["books"]["sessions"]
    requests, made, saved = (
        sum(one[k] for one in books) for k in ("requests", "compactions", "saved")
    )
    assert made >= 1
    assert f"in front of {upstream.root_url}" in err
    assert f"{requests} requests in {len(books)} conversation" in err
    assert f"{made} compaction" in err
    assert f"{saved:,} tokens left out by compactions" in err
    assert "too large for the window, and sent smaller" in err
    assert re.search(r"window 1\.5k: [\d.k]+ tokens used at last, \d+%; at most \d+%", err)
    assert "failures" not in err
    assert list(bench.left.iterdir()) == []
    assert not is_open(port_of(told))


def test_what_was_rare_is_told_where_it_happened() -> None:
    some = RunFigures(2, 1, 0, 0, 0, 1, 900, None, None, 0.42)
    assert list(write_receipt(some, observed=True)) == [
        "ullage: 2 requests in 1 conversation, 0 compactions (observed only: nothing was changed)",
        "  1 request refused as too large, and then taken",
        "  window unknown: 900 tokens used at last",
        "  $0.4200 by the reports, at list prices",
    ]
    heard = EndListener()
    for number in range(5):
        heard.failures[500, f"POST /{number}", ""] = 1
        heard.warnings[f"warning {number}"] = 2
    assert list(write_failures(heard))[2:] == ["  POST /2: 500", "  and 2 other failures"]
    assert list(write_warnings(heard))[2:] == ["  2 times warning 2", "  and 2 other warnings"]


def test_quiet_says_nothing_where_nothing_failed(
    bench: Bench, upstream: FaultServer, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.setenv("ASK", ask(1))
    log = bench.left.parent / "proxy.log"
    words = ["-q", "--log", str(log), "--observe", "--upstream", upstream.root_url, "--", "agent"]
    assert main(["with", *words]) == 0
    assert capfd.readouterr() == ("", "")
    assert f"POST {CHAT}" in log.read_text()


def test_an_upstream_that_is_not_there_is_told_at_the_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.setenv("ASK", ask(1, 1))
    with closed_port() as port:
        assert main(["with", "--upstream", f"http://127.0.0.1:{port}", "agent"]) == 0
    assert bench.told["statuses"] == [502, 502]
    assert f"2 times POST {CHAT}: 502, the upstream cannot be reached" in capfd.readouterr().err


def test_a_server_without_the_clients_api_is_told_with_what_is_needed(
    bench: Bench, upstream: FaultServer, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.setenv("ASK", ask(1, path="/v1/messages"))
    assert main(["with", "--upstream", upstream.root_url, "claude"]) == 0
    err = capfd.readouterr().err
    assert bench.told["statuses"] == [404]
    assert f"/v1/messages was asked for, which {upstream.root_url} has not" in err
    assert "Claude Code needs Anthropic's Messages API" in err


def test_a_client_that_asked_nothing_is_told_of(bench: Bench, capfd: Capture) -> None:
    assert main(["with", "claude", "--version"]) == 0
    assert "no conversation of Claude Code came through the proxy" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("command", "how"),
    [("claude", "npm install -g @anthropic-ai/claude-code"), ("nosuch", "give its path")],
)
def test_a_command_that_is_not_there_is_127_and_says_how_it_is_installed(
    bench: Bench, capfd: Capture, command: str, how: str
) -> None:
    (bench.bin / "claude").unlink()
    assert main(["with", command, "-p", "x"]) == 127
    err = capfd.readouterr().err
    assert f"no command '{command}' here" in err
    assert how in err


def test_a_command_that_cannot_be_run_is_126(
    bench: Bench, upstream: FaultServer, capfd: Capture
) -> None:
    path = bench.bin / "broken"
    path.write_text("#!/nowhere/python\n")
    path.chmod(0o755)
    assert main(["with", "--upstream", upstream.root_url, "broken"]) == 126
    assert "broken cannot be run" in capfd.readouterr().err
    assert list(bench.left.iterdir()) == []


WAITING = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
with open(os.environ["TOLD"], "w") as file:
    file.write('{"environ": {"ANTHROPIC_BASE_URL": "%s"}}' % os.environ["ANTHROPIC_BASE_URL"])
print(os.getpid(), flush=True)
signal.sigwait({signal.SIGTERM})
sys.exit(5)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 5), (signal.SIGKILL, 137)])
def test_a_signal_is_passed_on_and_a_client_that_is_killed_leaves_nothing(
    bench: Bench, upstream: FaultServer, number: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-m", "ullage", "with", "--upstream", upstream.root_url]
    command += [sys.executable, "-c", WAITING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        client = int(process.stdout.readline())
        process.send_signal(signal.SIGINT)  # as a key would: it is the client's to answer
        os.kill(process.pid if number == signal.SIGTERM else client, number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert not is_open(port_of(bench.told))
    eventually(lambda: not Path(f"/proc/{client}").exists())
    assert list(bench.left.iterdir()) == []


# ── what clients are told ───────────────────────────────────────────────────────────────────────


def run_client(bench: Bench, *words: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    assert main(["with", "-q", *words]) == 0
    return bench.told, bench.told["environ"]


def test_claude_code_gets_a_variable_and_no_login_goes_to_a_foreign_server(
    bench: Bench, upstream: FaultServer
) -> None:
    told, environ = run_client(bench, "claude", "--upstream", upstream.root_url, "-p", "hi")
    assert told["words"] == ["-p", "hi"]
    assert environ["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")
    assert environ["ANTHROPIC_AUTH_TOKEN"] == "ullage"
    assert "ANTHROPIC_AUTH_TOKEN" not in run_client(bench, "claude")[1]


def test_an_address_in_claude_codes_own_settings_is_the_upstream_and_is_overruled(
    bench: Bench, upstream: FaultServer, capfd: Capture
) -> None:
    path = bench.left.parent / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"env": {"ANTHROPIC_BASE_URL": upstream.root_url}}))
    assert main(["with", "claude", "-p"]) == 0
    assert f"in front of {upstream.root_url}" in capfd.readouterr().err
    option, settings, last = bench.told["words"]
    assert (option, last) == ("--settings", "-p")
    named = json.loads(settings)["env"]["ANTHROPIC_BASE_URL"]
    assert named == bench.told["environ"]["ANTHROPIC_BASE_URL"]


def test_codex_gets_a_provider_of_its_own(
    bench: Bench, upstream: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, _ = run_client(bench, "--upstream", upstream.root_url, "codex", "exec", "hi")
    assert told["words"][:2] == ["-c", 'model_provider="ullage"']
    assert 'wire_api="responses"' in told["words"][3]
    assert not re.search("env_key|requires_openai_auth", told["words"][3])
    assert told["words"][4:] == ["exec", "hi"]
    assert "requires_openai_auth=true" in run_client(bench, "codex")[0]["words"][3]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    assert 'env_key="OPENAI_API_KEY"' in run_client(bench, "codex")[0]["words"][3]


def test_pi_gets_an_extension_that_is_deleted_and_the_models_of_the_server(
    bench: Bench, upstream: FaultServer
) -> None:
    told, _ = run_client(bench, "--upstream", upstream.root_url, "pi", "-p", "hi")
    option, path, *rest = told["words"]
    assert (option, rest) == ("--extension", ["--model", "ullage/tiny", "-p", "hi"])
    assert 'pi.registerProvider("ullage"' in told["files"][path]
    assert not Path(path).exists()
    assert list(bench.left.iterdir()) == []
    told, _ = run_client(bench, "--upstream", upstream.root_url, "pi", "--model", "ullage/other")
    assert told["words"][2:] == ["--model", "ullage/other"]


def test_opencode_gets_settings_over_the_users_own(
    bench: Bench, upstream: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", '{"theme": "x", "provider": {"mine": {}}}')
    _, environ = run_client(bench, "--upstream", upstream.root_url, "opencode", "run", "hi")
    made = json.loads(environ["OPENCODE_CONFIG_CONTENT"])
    assert (made["theme"], made["model"]) == ("x", "ullage/tiny")
    assert {"mine", "anthropic", "openai", "google", "ullage"} == set(made["provider"])
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", "no JSON")
    assert "ullage" not in json.loads(run_client(bench, "opencode")[1]["OPENCODE_CONFIG_CONTENT"])


def test_any_command_gets_the_variables_of_the_sdks(bench: Bench) -> None:
    _, environ = run_client(bench, "agent")
    root = environ["ANTHROPIC_BASE_URL"]
    assert environ["OPENAI_BASE_URL"] == environ["OPENAI_API_BASE"] == f"{root}/v1"
    assert environ["ANTHROPIC_API_BASE"] == environ["GOOGLE_GEMINI_BASE_URL"] == root
    assert not {"OPENAI_API_KEY", "NO_PROXY"} & set(environ)


def test_a_proxy_of_the_network_is_passed_by(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:3128")
    monkeypatch.setenv("NO_PROXY", "example.com")
    assert run_client(bench, "agent")[1]["NO_PROXY"] == "example.com,127.0.0.1,localhost"


# ── where requests go ───────────────────────────────────────────────────────────────────────────


def upstreams(*words: str, environ: Mapping[str, str] | None = None) -> list[str]:
    given = parser("with").parse_args(["with", *with_.settle_words(words)])
    with_._take_upstream(given)
    found = with_.read(given, environ or {}, clients.find_client(given.client))
    return [one.root for one in found.upstreams]


def test_without_a_word_requests_go_to_the_clients_own_providers() -> None:
    assert upstreams("claude") == ["https://api.anthropic.com"]
    assert upstreams("/opt/bin/codex.exe") == ["https://api.openai.com"]
    assert len(upstreams("agent")) == 3
    found = clients.list_upstreams(clients.find_client("agent"), {})
    for model, name in (("claude-opus-5", "anthropic"), ("gemini-3", "google"), (None, "openai")):
        assert next(one.name for one in found if one.serves(model)) == name


@pytest.mark.parametrize(
    ("client", "name", "value", "root"),
    [
        ("claude", "ANTHROPIC_BASE_URL", "http://h:1/", "http://h:1"),
        ("codex", "OPENAI_BASE_URL", "https://openrouter.ai/api/v1", "https://openrouter.ai/api"),
        ("ollama", "OLLAMA_HOST", "0.0.0.0", "http://127.0.0.1:11434"),
        ("ollama", "OLLAMA_HOST", "box:80", "http://box:80"),
    ],
)
def test_an_address_that_the_user_named_is_the_upstream(
    client: str, name: str, value: str, root: str
) -> None:
    assert upstreams(client, environ={name: value}) == [root]
    assert upstreams("--upstream", "http://x", client, environ={name: value}) == ["http://x"]


def test_a_file_names_upstreams_and_its_tokens_and_port_do_not_hold(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(
        '[serve]\nport = 9\nstore = "sqlite:x.db"\n[serve.tokens]\nalice = "0123456789abcdefgh"\n'
        '[[serve.upstreams]]\nname = "a"\nbase_url = "http://a"\n'
        '[[serve.rules]]\nkey = "alice"\nwindow = 5000\n[[serve.rules]]\nwindow = 6000\n'
    )
    given = parser("with").parse_args(["with", "--config", str(file), "claude"])
    found = with_.read(given, {}, clients.find_client("claude"))
    assert [one.root for one in found.upstreams] == ["http://a"]
    assert (found.port, dict(found.tokens), found.store) == (0, {}, "memory:")
    assert [rule.window for rule in found.rules] == [6000]
    words = ["--config", str(file), "--upstream", "http://b", "claude"]
    assert upstreams(*words) == ["http://b"]


def test_an_upstream_without_a_url_and_a_log_that_cannot_be_written_are_refused(
    bench: Bench, capfd: Capture
) -> None:
    with pytest.raises(ConfigurationError, match="--upstream needs a URL"):
        upstreams("claude", "--upstream")
    assert upstreams("claude", "--upstream=http://x", "--", "--upstream") == ["http://x"]
    assert main(["with", "--log", str(bench.left), "claude"]) == 1
    assert "cannot be written" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "settled"),
    [
        (["--demo", "pi"], ["--demo=smollm2-135m", "pi"]),
        (["--demo", "smollm2-135m", "pi"], ["--demo=smollm2-135m", "pi"]),
        (["--demo", "x.gguf", "pi"], ["--demo=x.gguf", "pi"]),
        (["-q", "--window", "9", "--demo", "pi", "--demo"], None),
        (["--policy=off", "--", "pi", "--demo", "x"], ["--policy=off", "--", "pi", "--demo", "x"]),
    ],
)
def test_the_clients_name_is_never_taken_for_a_model(
    words: Sequence[str], settled: Sequence[str] | None
) -> None:
    expected = settled or ["-q", "--window", "9", "--demo=smollm2-135m", "pi", "--demo"]
    assert with_.settle_words(words) == expected
