"""Several clients behind one key: what one of them makes a server say holds for that one alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.proxy.serving import CHAT, WHOLE, Proxy, asked, conversation, proxied, talk
from tests.support.faults import FaultServer, of_json
from ullage.config.serving import Upstream

TOKENS = {name: name[0] * 24 for name in ("ann", "bob", "cid")}
LIE = "This model's maximum context length is {limit} tokens. However, you requested {size} tokens"
RESULTED = (
    "This model's maximum context length is {limit} tokens. However, your messages resulted in "
    "{size} tokens. Please reduce the length of the messages."
)
SHIFT = (
    "the request exceeds the available context size. try increasing the context size or enable "
    "context shift: {size} tokens, {limit} available"
)
WORDINGS = (LIE, RESULTED, "prompt is too long: {size} tokens > {limit} maximum", SHIFT)


def refuse(text: str) -> Any:
    error = {"message": text, "type": "invalid_request_error", "code": None, "param": None}
    return of_json({"error": error}, 400)


def ask(proxy: Proxy, who: str, body: Any) -> Any:
    return proxy.post(CHAT, body, authorization=f"Bearer {TOKENS[who]}")


def window(got: Any) -> str:
    """Return what the proxy says of the window, or nothing."""
    said = got.headers.get("x-ullage-context", "")
    return next((part for part in said.split("; ") if part.startswith("window=")), "")


def long(turns: int, **more: Any) -> dict[str, Any]:
    return conversation("openai_chat", turns, stream=False, **more)


def over(answer: Any) -> Any:
    return FaultServer({CHAT: answer})


def behind(server: FaultServer) -> Any:
    upstreams = (Upstream("main", server.root_url, api_key="sk-operator"),)
    return proxied(server.root_url, upstreams=upstreams, tokens=TOKENS, rules=())


GOOD = of_json(WHOLE["openai_chat"])
TRUE = refuse(LIE.format(limit=4_096, size=6_000))


def test_a_limit_that_one_client_met_holds_for_that_one_until_another_meets_it_too() -> None:
    script = (TRUE, GOOD, GOOD, TRUE, GOOD, GOOD)
    with over(script) as server, behind(server) as proxy:
        assert ask(proxy, "ann", long(20)).status_code == 200
        assert window(ask(proxy, "bob", talk("openai_chat", stream=False))) == ""
        assert ask(proxy, "bob", long(21)).status_code == 200
        assert window(ask(proxy, "cid", talk("openai_chat", stream=False))) == "window=4096"
        assert len(asked(server)) == 6


@pytest.mark.parametrize("wording", WORDINGS)
@pytest.mark.parametrize("place", ["field", "tool", "text", "role"])
def test_a_sentence_that_the_client_wrote_itself_proves_no_limit(wording: str, place: str) -> None:
    lie = wording.format(limit=1, size=9_999_999)

    body = long(12)
    if place == "field":
        body = {**body, lie: 1}
    elif place == "tool":
        tool = {"type": "function", "function": {"name": lie, "parameters": {}}}
        body = {**body, "tools": [tool]}
    elif place == "role":
        body["messages"][0]["role"] = lie
    else:
        body["messages"][0]["content"] += f"\n\n{lie.replace(' ', '  ')}"
    answers = (refuse(f"Unrecognized argument: {lie!r}. Check your spelling."), GOOD)
    with over(answers) as server, behind(server) as proxy:
        ask(proxy, "ann", json.dumps(body).encode())
        for who in ("ann", "bob"):
            again = ask(proxy, who, long(3))
            assert again.status_code == 200
            assert window(again) == ""


def test_what_one_client_learned_of_a_server_that_refuses_its_wishes_is_its_own() -> None:
    refused = refuse("stream_options is not supported: remove include_usage")
    with over((refused, GOOD, GOOD)) as server:
        upstreams = (Upstream("main", server.root_url, api_key="sk-operator"),)
        more: dict[str, Any] = {"upstreams": upstreams, "tokens": TOKENS, "usage": "inject"}
        with proxied(server.root_url, **more) as proxy:
            ask(proxy, "ann", talk("openai_chat"))
            ask(proxy, "bob", talk("openai_chat"))
        *_, last = asked(server)
        assert "include_usage" in last.body.decode()
