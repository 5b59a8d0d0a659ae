"""Scripted models over real HTTP, and what a session's log shows of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.faults import Answer, FaultServer, of_json, sse
from ullage.agent import Agent, Session
from ullage.providers import Limits, Provider

CHAT = "POST /v1/chat/completions"

QUICK = Limits(stall_s=2.0, connect_s=2.0, attempts=2, longest_wait_s=0.01)


def said(text: str, prompt: int = 50) -> Answer:
    """Answer with text, in two pieces."""
    half = len(text) // 2
    return sse(
        chunk({"content": text[:half]}),
        chunk({"content": text[half:]}, finish="stop"),
        usage(prompt),
        "[DONE]",
    )


def called(*calls: tuple[str, Mapping[str, Any]], text: str = "", prompt: int = 50) -> Answer:
    """Answer with tool calls: (name, arguments)."""
    made = [
        {
            "index": i,
            "id": f"call_{name}_{i}_{prompt}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for i, (name, arguments) in enumerate(calls)
    ]
    opening = [chunk({"content": text})] if text else []
    return sse(
        *opening,
        chunk({"tool_calls": made}),
        chunk({}, finish="tool_calls"),
        usage(prompt),
        "[DONE]",
    )


def broken(text: str) -> Answer:
    """Begin an answer, and break off."""
    return sse(chunk({"content": text}), cut=True)


def overflow(limit: int = 2048, size: int = 4000) -> Answer:
    """Refuse in llama.cpp's words."""
    message = (
        f"request ({size} tokens) exceeds the available context size ({limit} tokens), try "
        "increasing it"
    )
    error = {"code": 400, "message": message, "type": "exceed_context_size_error"}
    return of_json({"error": {**error, "n_prompt_tokens": size, "n_ctx": limit}}, 400)


def chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    """Return an event of a streamed answer."""
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": dict(delta), "finish_reason": finish}],
    }


def usage(prompt: int) -> dict[str, Any]:
    """Return the event behind the last one, with the usage."""
    report = {"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5}
    return {"object": "chat.completion.chunk", "choices": [], "usage": report}


def scripted(*answers: Answer) -> FaultServer:
    """Return a server that plays these answers, one after the other."""
    return FaultServer({CHAT: answers})


def agent(server: FaultServer, workspace: Path | None = None, **more: Any) -> Agent:
    """Return an agent whose model is that server's."""
    options = more.pop("options", {})
    provider = Provider("model", server.base_url, options=options, limits=QUICK)
    return Agent(provider, workspace=workspace, **{"window": 8_000, **more})


def bodies(server: FaultServer) -> list[dict[str, Any]]:
    """Return what the model was sent."""
    return [json.loads(r.body) for r in server.requests if r.path.endswith("/completions")]


def types(session: Session) -> list[str]:
    """Return the types of a session's events, without its creation."""
    return [event.type for event in session.events()][1:]


def data(session: Session, kind: str) -> list[Mapping[str, Any]]:
    """Return the data of all events of a type."""
    return [event.data for event in session.events() if event.type == kind]
