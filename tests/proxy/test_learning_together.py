"""What one replica learns decides at the others, too, and at one that is started later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.serving import CHAT, RESPONSES, Proxy, asked, proxied, streamed, talk
from tests.proxy.strangers import MODEL, PROSE, WINDOW, Stranger
from tests.proxy.test_interface import read_files
from tests.support.faults import Answer, FaultServer, of_json
from tests.support.waiting import eventually
from ullage.config.serving import ModelRule
from ullage.core.tokens.calibration import ReportedSize
from ullage.proxy.steering import Steering
from ullage.storage import open_store
from ullage.windows import Question

Started = Callable[..., AbstractContextManager[Proxy]]
UNKNOWN = (ModelRule(),)


@pytest.fixture(params=["sqlite", "postgres"])
def started(request: pytest.FixtureRequest, tmp_path: Path) -> Started:
    """Start one replica more with each call."""
    url = f"sqlite:{tmp_path}/store.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_database")()

    @contextmanager
    def starting(upstream: str, **more: Any) -> Iterator[Proxy]:
        store = open_store(url)
        with proxied(upstream, store=store, **more) as proxy:
            yield proxy
        store.close()

    return starting


def talked(turns: int) -> list[dict[str, Any]]:
    said = [{"role": "user", "content": f"Question 0: {PROSE * 2}"}]
    for turn in range(turns):
        said.append({"role": "assistant", "content": f"Answer {turn}: {PROSE * 2}"})
        said.append({"role": "user", "content": f"And {turn}? {PROSE * 2}"})
    return said


def question(server: Stranger | FaultServer) -> Question:
    return Question(MODEL, f"{server.root_url}/v1")


def bound(proxy: Proxy, asked_for: Question) -> int | None:
    return proxy.app.runtime.windows.recall(asked_for).input_tokens


def test_a_limit_that_a_server_named_to_one_is_known_to_all(started: Started) -> None:
    with Stranger() as server, started(server.root_url, rules=UNKNOWN) as two:
        with started(server.root_url, rules=UNKNOWN) as one:
            about = question(server)
            body = {"model": MODEL, "messages": talked(40), "max_tokens": 64}
            assert one.post(CHAT, body).status_code == 200
            assert server.prompts[0].refused
            assert bound(one, about) == WINDOW
            eventually(lambda: bound(two, about) == WINDOW)
        with started(server.root_url, rules=UNKNOWN) as late:
            assert bound(late, about) == WINDOW
            before = len(server.prompts)
            assert late.post(CHAT, body).status_code == 200
            assert not any(prompt.refused for prompt in server.prompts[before:])


def test_how_a_server_counts_and_what_it_refuses_is_known_to_all(started: Started) -> None:
    with Stranger() as server, started(server.root_url) as two:
        key = question(server).own_key
        with started(server.root_url) as one:
            lessons = one.app.runtime.lessons
            for size in (1_000, 2_000):
                lessons.learn(key, ReportedSize(size * 3 // 2, size, 10))
            lessons.note_law(key, "alternation")
            lessons.note_law(key, "alternation")
            heard = two.app.runtime.lessons.find
            eventually(lambda: heard(key).laws == {"alternation"})
            eventually(lambda: heard(key).calibration == lessons.find(key).calibration)
        assert one.app.runtime.lessons.tell is None


def test_what_somebody_has_forgotten_is_forgotten_at_all(started: Started) -> None:
    with Stranger() as server, started(server.root_url, rules=UNKNOWN) as two:
        about = question(server)
        with started(server.root_url, rules=UNKNOWN) as one:
            body = {"model": MODEL, "messages": talked(40), "max_tokens": 64}
            one.post(CHAT, body)
            one.app.runtime.lessons.note_law(about.own_key, "alternation")
            eventually(lambda: bound(two, about) == WINDOW)
            eventually(lambda: bool(two.app.runtime.lessons.find(about.own_key).laws))
            one.app.forget(about)
            assert bound(one, about) is None
            eventually(lambda: bound(two, about) is None)
            eventually(lambda: not two.app.runtime.lessons.find(about.own_key).laws)
        with started(server.root_url, rules=UNKNOWN) as late:
            assert bound(late, about) is None


def test_a_field_that_an_upstream_minds_is_added_by_nobody(started: Started) -> None:
    refusal = {"error": {"message": "stream_options is not supported: remove include_usage"}}
    script: tuple[Answer, ...] = (of_json(refusal, 400), streamed("openai_chat"))
    with (
        FaultServer({CHAT: script}) as upstream,
        started(upstream.root_url, usage="inject") as two,
        started(upstream.root_url, usage="inject") as one,
    ):
        assert one.post(CHAT, talk("openai_chat")).status_code == 200
        eventually(lambda: two.app.guarding.refused == one.app.guarding.refused)
        assert two.post(CHAT, talk("openai_chat")).status_code == 200
        assert [b"stream_options" in one.body for one in asked(upstream)] == [True, False, False]
        with started(upstream.root_url, usage="inject") as late:
            assert late.app.guarding.refused == one.app.guarding.refused


def test_what_an_operator_pinned_or_took_back_holds_at_all(started: Started) -> None:
    named, pin = b"a conversation", b"a message"
    with Stranger() as server, started(server.root_url) as two:
        with started(server.root_url) as one:
            one.app.guarding.steer(named, lambda steering: steering.toggle(named, pin))
            one.app.guarding.steer(named, lambda steering: steering.spare(named, yes=True))
            wanted = Steering({named: frozenset({pin})}, frozenset({named}))
            eventually(lambda: two.app.guarding.steering == wanted)
            two.app.guarding.steer(named, lambda steering: steering.toggle(named, pin))
            eventually(lambda: not one.app.guarding.steering.pins)
        two.app.reload(two.app.serve)
        assert two.app.guarding.steering == Steering(spared=frozenset({named}))
        with started(server.root_url) as late:
            assert late.app.guarding.steering == two.app.guarding.steering


def test_the_size_of_a_history_that_the_server_keeps_is_known_to_all(started: Started) -> None:
    usage = {"input_tokens": 400, "output_tokens": 30}
    told = {"id": "a", "object": "response", "output": [], "usage": usage}
    with (
        FaultServer({RESPONSES: of_json(told)}) as upstream,
        started(upstream.root_url, rules=(ModelRule(window=1_000),)) as one,
    ):
        body = talk("openai_responses", stream=False)
        one.post(RESPONSES, body)
        eventually(lambda: one.shown("ullage_store_waiting_changes") == 0)
        with started(upstream.root_url, rules=(ModelRule(window=1_000),)) as two:
            nobody = two.post(RESPONSES, {**body, "previous_response_id": "b"})
            assert "used=" not in nobody.headers["x-ullage-context"]
            known = two.post(RESPONSES, {**body, "previous_response_id": "a"})
            assert "used=43" in known.headers["x-ullage-context"]


def test_a_session_is_read_back_at_any_replica(started: Started) -> None:
    rules = (ModelRule(window=4_096, recall_tools=True),)
    with Stranger() as server, started(server.root_url, rules=rules) as one:
        body = {"model": "m", "messages": read_files(6), "session": "back"}
        fitted = one.post("/ullage/v1/fit", body).json()
        (name, *_) = fitted["compaction"]["references"]
        eventually(lambda: one.shown("ullage_store_waiting_changes") == 0)
        with started(server.root_url, rules=rules) as two:
            query = {"model": "m", "session": "back", "reference": name}
            found = two.post("/ullage/v1/recall", query)
            assert found.status_code == 200
            assert found.json()["text"] == one.post("/ullage/v1/recall", query).json()["text"]
            other = two.post("/ullage/v1/recall", {**query, "session": "other"})
            assert other.json()["error"]["code"] == "no_such_session"
