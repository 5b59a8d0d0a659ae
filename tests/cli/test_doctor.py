"""`ullage doctor` as a user calls it: real and scripted servers, only this machine, no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.faults import Answer, FaultServer, Script, closed_port, hanging, html, of_json
from tests.support.fixtures import StartServer
from tests.support.recording import Recording
from ullage.cli import doctor
from ullage.cli.main import main
from ullage.core.tokens.claim import Claim
from ullage.core.tokens.window import resolve
from ullage.embedded import Launch, Server
from ullage.transport import Timeouts
from ullage.windows.table import WindowTable

RECORDINGS = Path(__file__).parents[1] / "recordings"
SHORT = Timeouts(connect_s=5.0, read_s=1.0)
SENTINEL = "sk-sentinel-7f3a91"


def port(url: str) -> str:
    return str(urlsplit(url).port)


def listing(*ids: Any, **more: Any) -> Answer:
    return of_json({"object": "list", "data": [{"id": i, "object": "model", **more} for i in ids]})


def ollama(loaded: int, *names: str) -> dict[str, Script]:
    """Return an Ollama 0.34 that has loaded the first of its models with so many tokens."""
    running = {"name": names[0], "model": names[0], "context_length": loaded}
    info = {"general.architecture": "qwen3", "qwen3.context_length": 40_960}
    return {
        "GET /v1/models": listing(*names, owned_by="library"),
        "GET /api/ps": of_json({"models": [running]}),
        "POST /api/show": of_json({"parameters": "", "model_info": info}),
    }


def examined(routes: dict[str, Script]) -> tuple[doctor.Local, list[doctor.Problem], FaultServer]:
    with FaultServer(routes) as server:
        (local,) = doctor.examine([server.base_url], SHORT)
        return local, list(doctor.diagnose(local)), server


def told(capsys: pytest.CaptureFixture[str], *ports: str) -> dict[str, Any]:
    assert main(["doctor", "--json", "--ports", ",".join(ports)]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


# --- real servers ---------------------------------------------------------------------------------


def test_a_real_server_is_found_by_its_port(
    tiny_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    report = told(capsys, port(tiny_server.base_url))
    (local,) = report["servers"]
    (served,) = local["models"]
    assert local["server"] == "llama.cpp"
    assert (served["window"]["known"], served["window"]["input_tokens"]) == (True, 2048)
    assert {c["kind"]: c["tokens"] for c in served["window"]["claims"]}["trained"] == 131_072
    assert report["problems"] == []


def test_a_real_server_with_four_slots_is_told_to_share_its_pool(
    llama_server: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server = llama_server(Launch(window=4096, slots=4, unified_pool=True))
    assert main(["doctor", "--ports", port(server.base_url)]) == 0
    out = capsys.readouterr().out
    assert f"http://127.0.0.1:{port(server.base_url)}: llama.cpp" in out
    assert "4 slots; if they share one pool" in out
    assert "fix: start the server with -np 1" in out


# --- scripted servers -----------------------------------------------------------------------------


def test_ollama_that_allocates_less_than_was_trained_gets_the_fix() -> None:
    local, (problem, cold), _ = examined(ollama(4096, "qwen3:14b", "gemma3:4b"))
    assert local.server == "ollama"
    assert [m.window.input_tokens for m in local.models] == [4096, None]
    assert "4,096 tokens are allocated of 40,960" in problem.what
    assert "cuts longer prompts silently" in problem.what
    assert "OLLAMA_CONTEXT_LENGTH=40960" in problem.fix
    assert "num_ctx" in problem.fix
    assert "has not loaded 'gemma3:4b'" in cold.what
    assert "load the model and ask again" in cold.fix


def test_ollama_with_one_cold_model_names_it() -> None:
    routes = {**ollama(1, "qwen3:14b"), "GET /api/ps": of_json({"models": []})}
    local, (problem,), _ = examined(routes)
    assert [m.model for m in local.models] == ["qwen3:14b"]
    assert "has not loaded" in problem.what


def test_ollama_that_allocates_all_has_no_problem(capsys: pytest.CaptureFixture[str]) -> None:
    with FaultServer(ollama(40_960, "qwen3:14b")) as server:
        assert main(["doctor", "--ports", port(server.base_url)]) == 0
    out = capsys.readouterr().out
    assert "qwen3:14b: 40,960 tokens, allocated" in out
    assert "problems: none known" in out


def test_koboldcpp_is_said_to_cut() -> None:
    local, (problem,), _ = examined(
        {
            "GET /v1/models": listing("koboldcpp/m", owned_by="koboldcpp"),
            "GET /api/extra/true_max_context_length": of_json({"value": 8192}),
        }
    )
    assert (local.server, local.models[0].window.input_tokens) == ("koboldcpp", 8192)
    assert "cut silently" in problem.what
    assert "--contextsize" in problem.fix


def test_no_model_of_a_router_is_loaded_by_being_asked_about() -> None:
    recording = Recording.load(RECORDINGS / "router-cold.json").routes()
    routes: dict[str, Script] = {
        **recording,
        "GET /models": listing("cold"),
        "GET /v1/models": listing("cold", owned_by="llamacpp"),
        "GET /props": of_json({"role": "router", "default_generation_settings": {"n_ctx": 0}}),
        "GET /props?model=cold*": of_json({"error": "not loaded"}, 400),
    }
    _, problems, server = examined(routes)
    asked = [r.path for r in server.requests]
    assert [p for p in asked if "model=" in p] == ["/props?model=cold&autoload=false"]
    assert "it would load the model" in problems[0].what


def test_a_hub_is_asked_about_so_many_models_and_says_how_many_it_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = [f"m{n}" for n in range(doctor.MOST_MODELS + 3)]
    with FaultServer({"GET /v1/models": listing(*names, max_model_len=8192)}) as server:
        assert main(["doctor", "--ports", port(server.base_url)]) == 0
    out = capsys.readouterr().out
    assert out.count("8,192 tokens, ") == doctor.MOST_MODELS
    assert "and 3 more models that were not asked about" in out


def test_a_server_that_falls_silent_between_models_is_asked_no_more() -> None:
    routes: dict[str, Script] = {
        "GET /v1/models": (listing("a", "b", "c"), hanging()),
        "*": of_json({}, 404),
    }
    local, _, server = examined(routes)
    assert [m.model for m in local.models] == ["a"]
    assert local.unasked == 2
    assert server.requests[-1].path == "/v1/models"


def test_something_else_on_a_port_is_said_to_be_none() -> None:
    local, (problem,), _ = examined({"*": html()})
    assert (local.server, local.models) == ("", ())
    assert "does not tell its window" in problem.what
    assert "if it serves models, set the window" in problem.fix


def test_a_server_that_wants_a_key_is_sent_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SENTINEL)
    with FaultServer({"*": of_json({"error": "Invalid API Key"}, 401)}) as server:
        assert main(["doctor", "--ports", port(server.base_url)]) == 0
        assert all("authorization" not in r.headers for r in server.requests)
    out = capsys.readouterr().out
    assert "answers, and is no model server known here" in out
    assert f"ullage window --base-url {server.root_url}/v1 --api-key-env" in out


def test_a_name_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    name = "m\x1b[2J\n\ud800"
    with FaultServer({"GET /v1/models": listing(name, max_model_len=8192)}) as server:
        assert main(["doctor", "--ports", port(server.base_url)]) == 0
    assert "m?[2J??: 8,192 tokens" in capsys.readouterr().out


def test_servers_come_in_the_order_of_their_ports(capsys: pytest.CaptureFixture[str]) -> None:
    slow = {"GET /v1/models": Answer(blocks=(b'{"data":', b"[]}"), pause_s=0.05)}
    with FaultServer(slow) as one, FaultServer({"*": html()}) as two, closed_port() as none:
        report = told(capsys, port(one.base_url), str(none), port(two.base_url), str(none))
    assert [s["url"] for s in report["servers"]] == [one.root_url, two.root_url]
    assert len(report["asked"]) == 3


# --- nobody, and waiting --------------------------------------------------------------------------


def test_nobody_there_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with closed_port() as none:
        assert main(["doctor", "--ports", str(none)]) == 0
    out, err = capsys.readouterr()
    assert f"servers: none answers (asked on this machine: {none})" in out
    assert err == ""


def test_waiting_is_said_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with FaultServer({"*": hanging()}) as server:
        assert doctor.examine([server.base_url], SHORT, patience_s=0.0) == []
    out, err = capsys.readouterr()
    assert (out, err) == ("", "asking 1 local servers, waiting for 1 ...\n")


@pytest.mark.parametrize(
    "ports", ["", "x", "0", "65536", "-1", "8080,", "1.5", "٣", "80800000000", "1," * 64 + "2"]
)
def test_bad_ports_are_wrong_usage(ports: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["doctor", f"--ports={ports}"])
    assert stopped.value.code == 2
    assert "argument --ports" in capsys.readouterr().err


# --- only this machine ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base_url", [None, "https://api.example.com/v1", "http://[::1", "http://a:b"]
)
def test_only_the_usual_ports_of_this_machine_are_asked(base_url: str | None) -> None:
    urls = doctor._urls(None, base_url)
    assert urls == [f"http://127.0.0.1:{n}/v1" for n in doctor.PORTS]


def test_a_configured_server_of_this_machine_is_asked_first_and_without_its_password() -> None:
    urls = doctor._urls(None, f"http://me:{SENTINEL}@localhost:9999/llm/v1")
    assert urls[0] == "http://localhost:9999/llm/v1"
    assert len(urls) == len(doctor.PORTS) + 1


def test_a_configured_server_at_a_usual_port_is_asked_once() -> None:
    assert len(doctor._urls(None, "http://localhost:8080/v1/")) == len(doctor.PORTS)
    assert doctor._urls([7], "http://localhost:9999/v1") == ["http://127.0.0.1:7/v1"]


def test_a_proxy_of_the_environment_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with FaultServer({"*": html()}) as proxy, FaultServer({"*": html()}) as server:
        monkeypatch.setenv("http_proxy", proxy.root_url)
        assert [s["url"] for s in told(capsys, port(server.base_url))["servers"]] == [
            server.root_url
        ]
        assert proxy.requests == ()


def test_offline_asks_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ULLAGE_OFFLINE", "true")
    with FaultServer({"*": html()}) as server:
        assert main(["doctor", "--ports", port(server.base_url)]) == 0
        assert server.requests == ()
    assert "servers: not asked, since `offline` is set" in capsys.readouterr().out


# --- what is set ----------------------------------------------------------------------------------


def test_credentials_are_told_by_name_and_never_by_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("OPENAI_API_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, SENTINEL)
    monkeypatch.setenv("GROQ_API_KEY", "")
    monkeypatch.setenv("ULLAGE_BASE_URL", f"https://me:{SENTINEL}@example.com/v1")
    with closed_port() as none:
        for more in ([], ["--json"]):
            assert main(["doctor", "--ports", str(none), *more]) == 0
            out, err = capsys.readouterr()
            assert SENTINEL not in out + err
            assert "OPENAI_API_KEY" in out
            assert "GROQ_API_KEY" not in out
            assert "https://example.com/v1" in out


def test_every_variable_of_a_listing_row_would_be_told() -> None:
    held = doctor.credentials({"OPENAI_API_KEY": "a", "GEMINI_API_KEY": "b", "PATH": "c"})
    assert held == {"GEMINI_API_KEY": ["gemini"], "OPENAI_API_KEY": ["openai"]}


def test_files_variables_and_cache_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ullage.toml").write_text('policy = "off"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ULLAGE_CACHE_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("ULLAGE_BASE_URL", "http://127.0.0.1:9/v1")
    with closed_port() as none:
        assert main(["doctor", "--ports", str(none)]) == 0
    out = capsys.readouterr().out
    assert f", {tmp_path / 'ullage.toml'}\n" in out
    assert "ULLAGE_CONFIG, ULLAGE_BASE_URL, ULLAGE_CACHE_DIR" in out
    assert f"cache folder: {tmp_path / 'none'} (not there yet)" in out
    assert out.endswith("configured base URL: http://127.0.0.1:9/v1\n")


def test_the_cache_folder_is_the_users_where_none_is_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ULLAGE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with closed_port() as none:
        report = told(capsys, str(none))
    assert Path(report["configuration"]["cache"]).is_relative_to(tmp_path)
    assert set(report["versions"]) == {"ullage", "python", "platform", "table"}


@pytest.mark.parametrize("named", [True, False])
def test_broken_settings_are_a_problem_and_not_the_end(
    named: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "ullage.toml").write_text('polcy = "off"\n')
    monkeypatch.chdir(tmp_path)
    if not named:
        monkeypatch.setenv("ULLAGE_CONFIG", str(tmp_path / "none.toml"))
    with closed_port() as none:
        (problem,) = told(capsys, str(none))["problems"]
    assert ("did you mean 'policy'" if named else "which is no file") in problem["what"]
    assert "every other command stops here" in problem["fix"]


def test_a_base_url_that_is_none_is_a_problem_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ULLAGE_BASE_URL", f"http://me:{SENTINEL}@[::1")
    with closed_port() as none:
        assert main(["doctor", "--ports", str(none)]) == 0
    out, err = capsys.readouterr()
    assert "the base_url of $ULLAGE_BASE_URL is no http or https URL" in out
    assert SENTINEL not in out + err


def test_the_table_that_is_told_is_the_one_of_the_cache_folder(tmp_path: Path) -> None:
    assert doctor._versions(tmp_path)["table"] == WindowTable(tmp_path).snapshot


def test_a_window_without_a_trained_length_is_no_ollama_problem() -> None:
    window = resolve([Claim("allocated", 4096, "probe")])
    served = (doctor.Served("m", window),)
    assert list(doctor.diagnose(doctor.Local("http://h", "ollama", served))) == []
