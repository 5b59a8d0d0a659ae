"""An agent whose model is behind Gemini's own API, at a server of the documented shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.agent.acting import QUICK, data
from tests.support import clouds
from tests.support.faults import Answer, FaultServer, of_json, sse
from ullage.agent import Agent, Session
from ullage.cli.main import main
from ullage.providers import Provider

STREAM = "POST /v1beta/models/gemini-x:streamGenerateContent?alt=sse"


def calls(*asked: tuple[str, dict[str, Any]]) -> Answer:
    """Answer with calls without ids; the first one is signed."""
    parts = [{"functionCall": {"name": name, "args": args}} for name, args in asked]
    signed = [{**parts[0], "thoughtSignature": "c2lnbg=="}, *parts[1:]]
    content = {"role": "model", "parts": signed}
    counts = {"promptTokenCount": 90, "candidatesTokenCount": 9, "thoughtsTokenCount": 4}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    return sse({"candidates": [candidate], "usageMetadata": counts})


def hire(server: FaultServer, workspace: Path | None = None) -> Agent:
    provider = Provider(
        "gemini-x", server.base_url.removesuffix("/v1"), "gemini", "k", limits=QUICK
    )
    return Agent(provider, workspace=workspace, window=32_768)


def test_signed_calls_are_run_and_go_back_as_they_came(session: Session, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "cellar.txt").write_text("seven casks\n")
    (workspace / "attic.txt").write_text("two chests\n")
    asked = calls(("read", {"path": "cellar.txt"}), ("read", {"path": "attic.txt"}))
    with FaultServer({STREAM: (asked, sse(clouds.chunk("Seven.", 120, "STOP")))}) as server:
        done = hire(server, workspace).run(session, "What is in the house?")
        sent = [json.loads(request.body) for request in server.requests if request.body]
        keys = {request.headers.get("x-goog-api-key") for request in server.requests}
    assert (done.ok, done.text) == (True, "Seven.")
    assert keys == {"k"}
    assert "function response" not in clouds.gemini_fault(sent[1])
    first, second = sent[1]["contents"][-2:]
    assert first["parts"][0]["thoughtSignature"] == "c2lnbg=="
    assert "thoughtSignature" not in first["parts"][1]
    results = [part["functionResponse"]["response"]["output"] for part in second["parts"]]
    assert ["casks" in results[0], "chests" in results[1]] == [True, True]
    assert list(sent[0]["systemInstruction"]) == ["parts"]
    assert sent[0].keys() <= {"contents", "systemInstruction", "tools", "generationConfig"}
    usage = data(session, "provider_usage")[0]
    assert (usage["input"], usage["output"], usage["reasoning"]) == (90, 9, 4)


def test_a_refusal_in_googles_words_is_told(session: Session) -> None:
    error = {"code": 403, "message": "API key not valid.", "status": "PERMISSION_DENIED"}
    with FaultServer({STREAM: of_json({"error": error}, 403)}) as server:
        done = hire(server).run(session, "hi")
    assert not done.ok
    assert "API key not valid" in str(data(session, "turn_failed")[0])


def test_the_command_finds_the_only_model_that_is_served(tmp_path: Path, capsys: Any) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    listed = of_json({"models": [{"name": "models/gemini-x"}]})
    answer = sse(clouds.chunk("Seven.", 120, "STOP"))
    with FaultServer({STREAM: answer, "GET /v1beta/models": listed}) as server:
        where = ["--base-url", server.base_url.removesuffix("/v1"), "--dialect", "gemini"]
        more = ["--store", f"sqlite:{tmp_path}/state/s.db", "--workspace", str(workspace)]
        assert main(["run", "count", *where, *more, "--no-shell", "--window", "32000"]) == 0
    assert capsys.readouterr().out == "Seven.\n"
