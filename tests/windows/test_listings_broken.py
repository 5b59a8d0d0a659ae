"""Provider listings that answer wrongly, late or never: a claim or none, and no exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faults import FaultServer, closed_port, hanging, html
from tests.support.recording import Recording
from tests.support.waiting import eventually
from tests.windows.listed import (
    FOLDER,
    LISTINGS,
    NOW,
    PUBLISHING,
    ask,
    fed,
    first,
    sync,
    windowless,
)
from ullage.core.tokens.claim import acceptable
from ullage.transport import HttpResponse as Got
from ullage.transport import Timeouts
from ullage.windows.listings import MOST_PAGES, Listed

HASTY = Timeouts(connect_s=5.0, read_s=0.05)

MISSING = object()
BROKEN = {
    "missing": MISSING, "null": None, "a word": "128k", "a text": "131072.0", "zero": 0,
    "negative": -131_072, "true": True, "a fraction": 131_072.5, "a list": [131_072], "a map": {},
    "too small": 1_023,
}  # fmt: skip


def spoiled(body: Any, bad: Any) -> Any:
    """Return an answer with every number of tokens replaced; small numbers count pages."""
    if isinstance(body, list):
        return [spoiled(entry, bad) for entry in body]
    if not isinstance(body, dict):
        return bad if _tokens(body) else body
    kept = {k: v for k, v in body.items() if not (bad is MISSING and _tokens(v))}
    return {k: spoiled(v, bad) for k, v in kept.items()}


def _tokens(value: Any) -> bool:
    return (type(value) is int and value > 1_000) or (isinstance(value, str) and value.isdigit())


@pytest.mark.parametrize("bad", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("provider", PUBLISHING)
def test_a_broken_number_is_no_claim_and_one_complaint(provider, bad) -> None:
    bodies = [e.body for e in Recording.load(FOLDER / f"{provider}.json").exchanges]
    model = first(provider)
    windowless(fed(provider, model, *[spoiled(body, bad) for body in bodies]), model)


SHAPES = (
    b"", b"{not json", b"[" * 100_000, b"null", b"7", b'"text"', b"[null, 7, []]",
    b'{"data": null}', b'{"data": [{"id": 7}]}',
    b'{"data": {"models": 7}, "models": {}, "output": [], "result": "none"}',
)  # fmt: skip


@pytest.mark.parametrize("body", SHAPES, ids=range(len(SHAPES)))
@pytest.mark.parametrize("provider", PUBLISHING)
def test_an_answer_of_another_shape_is_no_claim_and_one_complaint(provider, body) -> None:
    windowless(fed(provider, first(provider), Got(200, body)), first(provider))


@pytest.mark.parametrize("status", [0, 204, 307, 401, 403, 404, 429, 500, 503])
@pytest.mark.parametrize("provider", PUBLISHING)
def test_a_refusal_is_no_claim_and_one_complaint(provider, status) -> None:
    refusal = Got(status, b'{"data": [], "error": "no"}', "" if status else "ConnectError")
    windowless(fed(provider, first(provider), refusal), first(provider))


@pytest.mark.parametrize("answer", [html(), hanging()], ids=["html", "slow"])
@pytest.mark.parametrize("provider", PUBLISHING)
def test_a_web_page_or_silence_is_no_claim_and_one_complaint(provider, answer) -> None:
    with FaultServer({"*": answer}) as server:
        patience = HASTY if answer.hang else None
        listed = sync(ask(provider, server, first(provider)), patience)
        eventually(lambda: len(server.requests) == 1)  # it may be written down a moment later
    assert listed.claims_by_model == {}
    windowless(listed, first(provider))


def test_a_refused_key_is_said_with_the_variable_that_would_hold_it() -> None:
    listed = fed("groq", "m", Got(401))
    assert listed.complaint.endswith("wants a key that it accepts (GROQ_API_KEY): HTTP 401")
    keyless = fed("vercel", "m", Got(403))
    assert keyless.complaint.endswith("wants a key that it accepts: HTTP 403")


def test_a_dead_port_is_asked_once_and_complained_of_once() -> None:
    with closed_port() as port:
        listed = sync(LISTINGS.ask("openrouter", f"http://127.0.0.1:{port}", "m", None, NOW))
    assert "gave no answer" in listed.complaint
    assert listed.about("m") == listed.complaint


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["data", "models", "output", "id", "name", "providers", "status", "context_length",
                 "limits", "aliases", "endpoints", "result", "properties", "last_id", "has_more"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)  # fmt: skip


@given(provider=st.sampled_from(LISTINGS.names()), body=JSON, model=st.none() | st.text(max_size=9))
def test_no_answer_whatever_raises_or_makes_an_unbelievable_claim(provider, body, model) -> None:
    asking = LISTINGS.ask(provider, "http://h/v1", model, None, NOW)
    try:
        next(asking)
        for _ in range(3 * MOST_PAGES):
            asking.send(Got(200, json.dumps(body).encode()))
        raise AssertionError("asks without end")
    except StopIteration as done:
        listed: Listed = done.value
    assert all(acceptable(c) for found in listed.claims_by_model.values() for c in found)
    assert isinstance(listed.about(model or ""), str)
