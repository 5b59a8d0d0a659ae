"""Bodies and bytes that nobody thought of: no fault of the proxy's own, and it lives on.

The server behind answers everything with 200, so every 5xx would be the proxy's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.proxy.sockets import Behind, Line, Served, ask, chat, request, serving

ROUTES: Final = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat")
WAIT_S: Final = 10.0
FEW: Final = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with (
        Behind() as behind,
        serving(tmp_path_factory.mktemp("fuzz"), [behind.url], max_body=200_000) as found,
    ):
        yield found
        assert found.alive
        assert "Traceback" not in found.log


# Half pairs are escapes in JSON; models are few, since the guard asks the server about each.
TEXT: Final = st.text(max_size=30) | st.sampled_from(["\ud800", "a\u2028b", "\0", "data: x\n\n"])
LEAF: Final = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
)  # fmt: skip
JSON: Final = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4)
)
ROLES: Final = st.sampled_from(["system", "user", "assistant", "tool", "developer", "function", ""])
KINDS: Final = st.sampled_from(
    ["text", "input_text", "image_url", "tool_use", "tool_result", "thinking", "function_call",
     "function_call_output", "message", "reasoning", "item_reference", "file", "input_audio"]
)  # fmt: skip


def odd(fields: dict[str, Any]) -> Any:
    """Return objects with these fields, each there or not, or something else in its place."""
    return st.fixed_dictionaries({}, optional={k: v | JSON for k, v in fields.items()})


PART: Final = odd(
    {
        "type": KINDS, "text": TEXT, "id": TEXT, "call_id": TEXT, "tool_use_id": TEXT,
        "name": TEXT, "input": JSON, "arguments": TEXT, "output": JSON, "content": TEXT,
        "cache_control": JSON, "source": JSON, "image_url": JSON,
    }
)  # fmt: skip
CALL: Final = odd(
    {"id": TEXT, "type": st.just("function"), "function": odd({"name": TEXT, "arguments": TEXT})}
)
MESSAGE: Final = odd(
    {
        "role": ROLES, "content": TEXT | st.lists(PART, max_size=3), "name": TEXT,
        "tool_calls": st.lists(CALL, max_size=3), "tool_call_id": TEXT, "type": KINDS,
        "call_id": TEXT, "output": JSON, "thinking": TEXT, "images": JSON,
    }
)  # fmt: skip
HISTORY: Final = st.lists(MESSAGE | JSON, max_size=5) | TEXT
BODY: Final = odd(
    {
        "model": st.sampled_from(["m", "gpt-4", "\ud800", "", "a\r\nb"]), "messages": HISTORY,
        "input": HISTORY, "stream": st.booleans(), "system": TEXT | st.lists(PART, max_size=2),
        "instructions": TEXT, "tools": st.lists(JSON, max_size=3), "n": st.integers(),
        "max_tokens": st.integers(), "max_completion_tokens": st.integers(),
        "max_output_tokens": st.integers(), "options": odd({"num_ctx": st.integers()}),
        "stream_options": JSON, "previous_response_id": TEXT, "thinking": JSON,
    }
)  # fmt: skip


@pytest.mark.parametrize("route", ROUTES)
@FEW
@given(body=BODY)
def test_no_body_of_json_is_answered_with_a_fault_of_the_proxys(
    proxy: Served, route: str, body: Any
):
    assume(not isinstance(body.get("model"), list | dict))
    reply = ask(proxy.port, request("POST", route, json.dumps(body).encode()), wait_s=WAIT_S)
    assert reply.status == 200 or 400 <= reply.status < 500
    assert reply.status == 200 or reply.get("x-ullage-error")


@pytest.mark.parametrize("route", ROUTES)
@FEW
@given(data=st.data())
def test_no_damage_to_a_body_does_harm(proxy: Served, route: str, data: st.DataObject):
    whole = bytearray(chat(stream=True, n=1, max_tokens=10, x=[1.5, None, "\u00e9"]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    reply = ask(proxy.port, request("POST", route, bytes(whole)), wait_s=WAIT_S)
    assert 200 <= reply.status < 500


@FEW
@given(data=st.data())
def test_no_damage_to_a_request_does_harm(proxy: Served, data: st.DataObject):
    whole = bytearray(request("POST", ROUTES[0], chat(), "x-ullage-session: a", "Accept: */*"))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with Line(proxy.port) as line:
        line.send(bytes(whole))
        line.end()
        found = line.read(until=1, wait_s=WAIT_S)
    assert all(reply.status < 500 for reply in found)


@FEW
@given(st.binary(max_size=300))
def test_no_bytes_do_harm(proxy: Served, noise: bytes):
    with Line(proxy.port) as line:
        line.send(noise)
        line.end()
        found = line.read(until=1, wait_s=WAIT_S)
    assert all(reply.status < 500 for reply in found)
    assert proxy.lives()
