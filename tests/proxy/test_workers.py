"""Large requests in processes beside the proxy: the same answers, and work that can be ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.proxy.rounds import bodies as sent_bodies
from tests.proxy.rounds import body as bare_body
from tests.proxy.rounds import running, whole
from tests.proxy.serving import (
    CHAT,
    OVERFLOWS,
    PATHS,
    STREAMS,
    WHOLE,
    Proxy,
    ask_and_leave,
    asked,
    conversation,
    proxied,
    sent,
    streamed,
    talk,
)
from tests.support.faults import FaultServer, hanging, of_json
from tests.support.waiting import eventually
from ullage.config.serving import ModelRule, Upstream
from ullage.lessons import Lessons
from ullage.proxy import exchange, far, guarding, workers
from ullage.proxy.doors import JOB, MOST_LESSONS, FarLessons, Pipe
from ullage.proxy.frames import ProxyReply, WorkerAsk, pack, read
from ullage.proxy.steering import Steering, digest_conversation, digest_message, make_whom
from ullage.proxy.workers import Worker, WorkerLost
from ullage.storage import MemoryStore
from ullage.storage.sqlite import SqliteStore

DIALECTS = tuple(PATHS)


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "LARGE", 0)


def gone(pid: int) -> bool:
    """Tell whether a process is gone, or dead and not yet buried."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def pids(proxy: Proxy) -> list[int]:
    """Return the workers of a proxy that has no request under way."""
    assert proxy.app.workers is not None
    eventually(lambda: all_idle(proxy))
    return proxy.app.workers.pids


def is_steered_no_more(proxy: Proxy) -> bool:
    return not proxy.app.guarding.steering


def all_idle(proxy: Proxy) -> bool:
    assert proxy.app.workers is not None
    return all(worker.is_idle for worker in proxy.app.workers._workers)


@contextmanager
def over(answer: Any, dialect: str = "openai_chat", **more: Any) -> Iterator[tuple[Proxy, Any]]:
    with FaultServer({PATHS[dialect]: answer}) as server, proxied(server.root_url, **more) as proxy:
        yield proxy, server


# --- the same as without --------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_conversation_is_compacted_as_it_is_without_workers(dialect: str) -> None:
    history = conversation(dialect, 40, stream=False)
    found = []
    for count in (0, 1):
        with over(of_json(WHOLE[dialect]), dialect, workers=count) as (proxy, server):
            got = proxy.post(PATHS[dialect], history)
            again = proxy.post(PATHS[dialect], history)
            assert (got.status_code, again.status_code) == (200, 200)
            told = {k: v for k, v in got.headers.items() if k.startswith("x-ullage")}
            del told["x-ullage-request-id"]
            eventually(lambda: len(proxy.app.ledger.all()) == 1)
            (entry,) = proxy.app.ledger.all()
            found.append((told, [each.body for each in asked(server)], entry.compactions))
            assert bool(count) == (proxy.app.workers is not None and bool(pids(proxy)))
    assert found[0] == found[1]
    assert found[0][2] == 1
    assert "x-ullage-compaction" in found[0][0]


def test_what_an_operator_asked_for_holds_there_too() -> None:
    history = conversation("openai_chat", 40, stream=False)
    said = history["messages"]
    for count in (0, 1):
        with over(of_json(WHOLE["openai_chat"]), workers=count) as (proxy, server):
            whom = make_whom(f"{proxy.app.serve.upstreams[0].root}/v1", "")
            named = digest_conversation(said, whom)
            pin = digest_message(said[5])
            proxy.app.guarding.steering = Steering().spare(named, yes=True)
            assert proxy.post(CHAT, history).status_code == 200
            eventually(partial(is_steered_no_more, proxy))  # it does not fit
            assert said[5] not in json.loads(asked(server)[-1].body)["messages"]
            proxy.app.guarding.steering = Steering().toggle(named, pin)
            assert proxy.post(CHAT, history).status_code == 200
            assert said[5] in json.loads(asked(server)[-1].body)["messages"]


def test_a_conversation_is_known_again_by_what_it_says_and_whom_it_is_for() -> None:
    plain = [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}]
    mark = {"cache_control": {"type": "ephemeral"}}
    parts = [{"type": "text", "text": "Hi", **mark}]
    marked = [{"role": "system", "content": "S", **mark}, {"role": "user", "content": parts}]
    assert digest_conversation(plain, "a") == digest_conversation([*marked, plain[0]], "a")
    assert digest_conversation(plain, "a") != digest_conversation(plain, "b")
    assert digest_message(plain[1]) == digest_message(marked[1])
    assert digest_message(plain[0]) != digest_message(plain[1])
    steering = Steering().toggle(b"a", b"x").toggle(b"a", b"y").toggle(b"b", b"x")
    assert steering.size == 3
    assert not steering.toggle(b"a", b"x").toggle(b"a", b"y").toggle(b"b", b"x")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_goes_on_as_it_comes(dialect: str) -> None:
    with over(streamed(dialect), dialect) as (proxy, _):
        got = proxy.post(PATHS[dialect], talk(dialect))
        assert got.content == sent(streamed(dialect))


def test_what_an_answer_says_is_learned_by_the_worker() -> None:
    usage = {"prompt_tokens": 3_000, "completion_tokens": 2, "total_tokens": 3_002}
    reported = {**WHOLE["openai_chat"], "usage": usage}
    history = conversation("openai_chat", 10, stream=False)
    with over(of_json(reported)) as (proxy, _):
        proxy.post(CHAT, history)
        eventually(lambda: proxy.app.ledger.all()[:1] != [])

        def calibrated() -> bool:
            longer = [*history["messages"], {"role": "user", "content": "and?"}]
            again = proxy.post(CHAT, {**history, "messages": longer})
            return "basis=calibrated" in again.headers["x-ullage-context"]

        eventually(calibrated)


@contextmanager
def lessons_far_away(lessons: Lessons) -> Iterator[tuple[FarLessons, list[str]]]:
    """Put a pipe in front of lessons; yield a worker's end, and what is asked and told there."""
    asks, there, here = list[str](), os.pipe(), os.pipe()
    link = Pipe(os.fdopen(here[0], "rb"), os.fdopen(there[1], "wb"))

    def answer() -> None:
        with os.fdopen(there[0], "rb") as source, os.fdopen(here[1], "wb") as sink:
            while (frame := read(source)) is not None:
                asks.append(frame.method)
                value = getattr(lessons, frame.method)(*frame.arguments)
                if isinstance(frame, WorkerAsk):
                    sink.write(pack(ProxyReply(frame.number, value)))
                    sink.flush()

    far_lessons = FarLessons(lambda: 1_000.0)
    far_lessons.link = link
    with ThreadPoolExecutor(2) as threads:
        threads.submit(answer)
        threads.submit(link.listen, print)
        try:
            yield far_lessons, asks
        finally:
            JOB.set(0)
            link._sink.close()
    link._source.close()


def test_a_job_asks_once_what_is_known_of_a_model_and_hears_what_it_taught_itself() -> None:
    lessons = Lessons(None, lambda: 1_000.0)
    with lessons_far_away(lessons) as (far_lessons, asks):
        nobody = far_lessons.find("m")  # outside of a job each look asks
        assert far_lessons.find("m") is nobody
        assert asks == ["find", "find"]
        JOB.set(7)
        assert far_lessons.find("m") is far_lessons.find("m") is nobody
        assert asks == ["find"] * 3
        far_lessons.note_law("m", "alternation")
        assert far_lessons.find("m").laws == {"alternation"}
        lessons.note_law("m", "whole_loops")  # by somebody else: the next job hears of it
        assert far_lessons.find("m").laws == {"alternation"}
        JOB.set(8)
        assert far_lessons.find("m").laws == {"alternation", "whole_loops"}
        assert asks == [*["find"] * 3, "note_law", "find", "find"]


def test_a_worker_keeps_what_it_was_told_of_few_models() -> None:
    with lessons_far_away(Lessons(None, lambda: 1_000.0)) as (far_lessons, _):
        for number in range(2 * MOST_LESSONS):
            far_lessons.find(str(number))
        assert len(far_lessons._found) == MOST_LESSONS


def test_what_a_worker_tells_and_cannot_be_done_is_logged_and_holds_nothing_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(Lessons, "learn", fail)
    with over(of_json(WHOLE["openai_chat"])) as (proxy, _):
        assert proxy.post(CHAT, talk("openai_chat", stream=False)).status_code == 200
        eventually(lambda: "what a worker told could not be done: lessons.learn" in caplog.text)
        assert proxy.post(CHAT, talk("openai_chat", stream=False)).status_code == 200


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic"])
def test_an_overflow_that_the_server_reports_is_recovered_from(dialect: str) -> None:
    script = (of_json(OVERFLOWS[dialect], 400), of_json(WHOLE[dialect]))
    rules = (ModelRule(window=16_384),)
    with over(script, dialect, rules=rules) as (proxy, server):
        got = proxy.post(PATHS[dialect], conversation(dialect, 30, stream=False))
        assert got.status_code == 200
        first, second = asked(server)
        assert len(second.body) < len(first.body)
        assert proxy.shown("ullage_overflow_recoveries_total", outcome="recovered") == 1


def test_added_tools_are_answered_from_the_proxys_store(tmp_path: Path) -> None:
    dialect = "openai_chat"
    recall = ("ullage_search", json.dumps({"query": "staging database"}))
    store = SqliteStore(tmp_path / "s.db")
    script = (whole(dialect, "", recall), whole(dialect, "done"))
    with running(dialect, *script, store=store) as (proxy, server):
        got = proxy.post(CHAT, bare_body(dialect))
        assert got.json()["choices"][0]["message"]["content"] == "done"
        first, second = sent_bodies(server)
        assert len(second["messages"]) == len(first["messages"]) + 2
        eventually(lambda: proxy.shown("ullage_tool_answers_total", outcome="found") == 1)
    store.close()


def test_a_body_that_is_refused_is_refused_by_the_same_words() -> None:
    deep = b'{"model": "m", "messages": ' + b"[" * 70 + b"]" * 70 + b"}"
    with over(of_json(WHOLE["openai_chat"])) as (proxy, _):
        got = proxy.post(CHAT, deep)
        assert (got.status_code, got.headers["x-ullage-error"]) == (400, "nested_too_deep")
        many = proxy.post(CHAT, talk("openai_chat", n=9))
        assert (many.status_code, many.headers["x-ullage-error"]) == (400, "too_many_choices")
        assert proxy.post(CHAT, b"no json").status_code == 200  # the server's to judge


def test_what_is_only_checked_is_checked_there_too() -> None:
    path = "/v1/embeddings"
    with FaultServer({path: of_json({"data": []})}) as server, proxied(server.root_url) as proxy:
        assert proxy.post(path, {"model": "m", "input": "x"}).json() == {"data": []}
        assert proxy.post(path, b'{"a": ' + b"[" * 70 + b"]" * 70 + b"}").status_code == 400
        assert pids(proxy)


def test_an_unknown_model_is_refused() -> None:
    upstreams = (Upstream("main", "http://127.0.0.1:9", models=("known*",)),)
    with over(of_json({}), upstreams=upstreams) as (proxy, _):
        assert proxy.post(CHAT, talk("openai_chat")).status_code == 404


# --- ended and replaced ---------------------------------------------------------------------------


def test_a_worker_that_was_killed_costs_one_more_try_and_loses_nothing() -> None:
    history = conversation("openai_chat", 40, stream=False)
    with over(of_json(WHOLE["openai_chat"])) as (proxy, server):
        first = proxy.post(CHAT, history)
        (pid,) = pids(proxy)
        os.kill(pid, signal.SIGKILL)
        second = proxy.post(CHAT, history)
        assert (first.status_code, second.status_code) == (200, 200)
        one, two = asked(server)
        assert one.body == two.body
        assert pids(proxy) != [pid]


def test_a_worker_whose_pipe_closed_just_now_is_lost_and_raises_nothing_else() -> None:
    """The loop closes the pipe of a process that ended before anybody is told of its end."""

    async def talk() -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("sleep", "30", stdin=pipe, stdout=pipe)
        worker = Worker(process, {}, lambda: None, 1)
        assert process.stdin is not None
        process.stdin.transport.abort()
        await asyncio.sleep(0.05)
        before = worker.is_lost
        worker.note("drop", 1)
        assert (before, worker.is_lost) == (False, True)
        with pytest.raises(WorkerLost):
            await worker.run("drop", 1)
        await worker.wait()
        process._transport.close()  # type: ignore[attr-defined]  # nobody else closes its output
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(talk())


def test_a_worker_that_gives_no_sign_of_life_is_killed_and_the_request_goes_out_as_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = conversation("openai_chat", 40, stream=False)
    raw = json.dumps(history).encode()
    with over(of_json(WHOLE["openai_chat"])) as (proxy, server):
        assert proxy.post(CHAT, talk("openai_chat", stream=False)).status_code == 200
        plan, stopped = far.FarRequest.plan, list[int]()

        async def stop_then_plan(self: Any, *arguments: Any) -> Any:
            stopped.append(self.worker.pid)
            os.kill(self.worker.pid, signal.SIGSTOP)  # as silent as one that is stuck
            return await plan(self, *arguments)

        monkeypatch.setattr(workers, "SILENT_S", 2.0)
        monkeypatch.setattr(far.FarRequest, "plan", stop_then_plan)
        got = proxy.post(CHAT, raw)
        assert got.status_code == 200
        assert asked(server)[-1].body == raw
        assert proxy.shown("ullage_workers_ended_total") == 1
        assert proxy.shown("ullage_guard_faults_total") == 1
        eventually(lambda: gone(stopped[0]))
        monkeypatch.undo()
        monkeypatch.setattr(exchange, "LARGE", 0)
        assert "x-ullage-compaction" in proxy.post(CHAT, raw).headers


def test_a_body_that_takes_too_long_to_read_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with over(of_json(WHOLE["openai_chat"])) as (proxy, server):
        proxy.post(CHAT, talk("openai_chat", stream=False))
        (pid,) = pids(proxy)
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr(far, "READ_S", 0.3)
        got = proxy.post(CHAT, talk("openai_chat", stream=False))
        assert (got.status_code, got.headers["x-ullage-error"]) == (503, "body_unread")
        assert len(asked(server)) == 1
        eventually(lambda: gone(pid))


def test_a_strict_proxy_refuses_where_its_worker_was_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with over(of_json(WHOLE["openai_chat"]), fail_open=False) as (proxy, server):
        proxy.post(CHAT, talk("openai_chat", stream=False))
        monkeypatch.setattr(guarding, "DEADLINE_S", 0.0)
        proxy.app.reload(replace(proxy.app.serve))
        got = proxy.post(CHAT, conversation("openai_chat", 40, stream=False))
        assert (got.status_code, got.headers["x-ullage-error"]) == (500, "guard_failed")
        assert len(asked(server)) == 1


def test_who_waits_too_long_for_a_turn_is_told_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "QUEUE_S", 0.3)
    with (
        over(of_json(WHOLE["openai_chat"]), workers=1) as (proxy, _),
        ThreadPoolExecutor(2) as pool,
    ):
        proxy.post(CHAT, talk("openai_chat", stream=False))
        (pid,) = pids(proxy)
        os.kill(pid, signal.SIGSTOP)
        body = talk("openai_chat", stream=False)
        stuck = pool.submit(proxy.post, CHAT, body)
        eventually(lambda: not all_idle(proxy))
        late = proxy.post(CHAT, body)
        assert late.status_code == 429
        assert late.headers["retry-after"] == str(workers.AGAIN_S)
        os.kill(pid, signal.SIGCONT)
        assert stuck.result(20).status_code == 200


def test_a_client_that_leaves_leaves_no_work_behind() -> None:
    with over(hanging()) as (proxy, server):
        grown = conversation("openai_chat", 40)
        ask_and_leave(proxy.url + CHAT, grown, lambda: len(asked(server)) == 1)
        eventually(lambda: all_idle(proxy))
        assert len(asked(server)) == 1
        assert proxy.shown("ullage_request_bytes") == 0


def test_workers_without_work_end_and_give_their_memory_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "IDLE_S", 0.2)
    with over(of_json(WHOLE["openai_chat"])) as (proxy, _):
        proxy.post(CHAT, talk("openai_chat", stream=False))
        (pid,) = pids(proxy)
        eventually(lambda: gone(pid))
        assert proxy.post(CHAT, talk("openai_chat", stream=False)).status_code == 200


def test_a_worker_begins_before_a_conversation_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    grown = json.dumps(conversation("openai_chat", 40, stream=False)).encode()
    monkeypatch.setattr(exchange, "LARGE", len(grown))
    monkeypatch.setattr(exchange, "NEARLY_LARGE", len(grown) // 2)
    with over(of_json(WHOLE["openai_chat"])) as (proxy, _):
        proxy.post(CHAT, talk("openai_chat", stream=False))
        assert pids(proxy) == []
        proxy.post(CHAT, grown)
        eventually(lambda: len(pids(proxy)) == 1)
        (pid,) = pids(proxy)
        proxy.post(CHAT, grown)
        proxy.post(CHAT, grown + b" ")
        assert pids(proxy) == [pid]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: pids(proxy) == [])
        proxy.post(CHAT, grown)
        eventually(lambda: len(pids(proxy)) == 1)


def test_another_configuration_has_workers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "IDLE_S", 0.2)
    with over(of_json(WHOLE["openai_chat"])) as (proxy, server):
        proxy.post(CHAT, conversation("openai_chat", 40, stream=False))
        (pid,) = pids(proxy)
        observing = replace(proxy.app.serve, rules=(ModelRule(window=8_192, observe=True),))
        proxy.app.reload(observing)
        raw = json.dumps(conversation("openai_chat", 40, stream=False)).encode()
        proxy.post(CHAT, raw)
        assert asked(server)[-1].body == raw
        assert pid not in pids(proxy) or gone(pid)
        eventually(lambda: gone(pid))


def test_signals_that_mean_the_proxy_end_no_worker() -> None:
    with over(of_json(WHOLE["openai_chat"])) as (proxy, _):
        proxy.post(CHAT, talk("openai_chat", stream=False))
        (pid,) = pids(proxy)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(pid, number)
        assert proxy.post(CHAT, talk("openai_chat", stream=False)).status_code == 200
        assert pids(proxy) == [pid]


def test_the_end_of_the_proxy_ends_its_workers() -> None:
    with over(of_json(WHOLE["openai_chat"])) as (proxy, _):
        proxy.post(CHAT, talk("openai_chat", stream=False))
        (pid,) = pids(proxy)
    assert gone(pid)


def test_workers_are_told_no_token_and_ask_for_nothing_but_what_stands_in_the_table() -> None:
    tokens = {"ann": "a" * 24}
    with over(of_json(WHOLE["openai_chat"]), tokens=tokens, store=MemoryStore()) as (proxy, _):
        got = proxy.post(CHAT, talk("openai_chat", stream=False), x_ullage_token="a" * 24)
        assert got.status_code == 200
        setup = proxy.app._set_up()
        assert set(setup.serve.tokens) == {"ann"}
        assert "a" * 24 not in setup.serve.tokens.values()
    assert STREAMS
