"""A conversation is found again whatever clients do to its edges, and by nobody else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.proxy.serving import Proxy, proxied
from tests.proxy.strangers import MODEL, PROSE, Prompt, Stranger
from ullage.config.serving import ModelRule
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.storage.memory import MemoryStore

WINDOW = 4_096

Message = dict[str, Any]


class Roomy(Stranger):
    """A server that takes all there is: the window is the operator's word."""

    def __init__(self) -> None:
        super().__init__()
        self.window = 10**9


@pytest.fixture
def server() -> Iterator[Roomy]:
    with Roomy() as running:
        yield running


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def proxy(server: Roomy, store: MemoryStore) -> Iterator[Proxy]:
    with proxied(server.root_url, store=store, rules=(ModelRule(window=WINDOW),)) as running:
        yield running


def worked(turns: int, *, operator: str = "You are a clerk.", thinks: bool = True) -> list[Message]:
    """Return an agent's history of so many calls, with what it thought."""
    history: list[Message] = [
        {"role": "system", "content": operator},
        {"role": "user", "content": "Go through all files, one by one."},
    ]
    for turn in range(turns):
        function = {"name": "read", "arguments": json.dumps({"path": f"{turn}.txt"})}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        said: Message = {"role": "assistant", "content": None, "tool_calls": [call]}
        if thinks:
            said["reasoning_content"] = f"I should read file {turn} now. {PROSE[:60]}"
        text = f"file {turn}: {PROSE * 5}"
        history += [said, {"role": "tool", "tool_call_id": f"call_{turn}", "content": text}]
    return history


def blocks(turns: int) -> list[Message]:
    """Return a history as Anthropic takes it."""
    history: list[Message] = []
    for turn in range(turns):
        asked = {"type": "text", "text": f"Question {turn}. {PROSE * 2}"}
        told = {"type": "text", "text": f"Answer {turn}. {PROSE * 3}"}
        history += [{"role": "user", "content": [asked]}, {"role": "assistant", "content": [told]}]
    return [*history, {"role": "user", "content": [{"type": "text", "text": "And the last?"}]}]


def sent(
    proxy: Proxy, server: Stranger, history: Sequence[Message], path: str = "/v1/chat/completions",
    system: Any = None, **headers: str,
) -> Prompt:  # fmt: skip
    """Send a history; return what reached the upstream."""
    body: dict[str, Any] = {"model": MODEL, "max_tokens": 100, "messages": history}
    if system is not None:
        body["system"] = system
    answer = proxy.post(path, body, **headers)
    assert answer.status_code == 200, answer.text
    return server.prompts[-1]


def compactions(proxy: Proxy) -> int:
    """Return how many compactions were planned."""
    return sum(entry.compactions for entry in proxy.app.ledger.all())


def kept(store: MemoryStore) -> list[Checkpoint]:
    """Return the checkpoints of a store."""
    return list(store.checkpoints._kept.values())


def plain(messages: Sequence[Message]) -> list[bytes]:
    """Return messages as bytes, without cache marks and reasoning: what must not change."""
    bare = copy.deepcopy(list(messages))
    for message in bare:
        message.pop("reasoning_content", None)
        for part in message["content"] if isinstance(message.get("content"), list) else ():
            part.pop("cache_control", None)
    return [json.dumps(message).encode() for message in bare]


def begins(longer: Prompt, shorter: Prompt, *, system: bool = True) -> bool:
    """Tell whether a prompt begins with all messages of another."""
    one, other = plain(longer.fields["messages"]), plain(shorter.fields["messages"])
    first = 0 if system else 1
    return one[first : len(other)] == other[first:]


def marked(history: Sequence[Message], *places: int) -> list[Message]:
    """Return a history with cache marks on the last part of these messages."""
    made = copy.deepcopy(list(history))
    for place in places:
        made[place]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return made


def test_cache_marks_that_move_do_not_lose_the_conversation(
    proxy: Proxy, server: Roomy, store: MemoryStore
) -> None:
    path = "/v1/messages"
    first = sent(proxy, server, marked(blocks(18), 0, -1), path)
    assert len(first.fields["messages"]) < len(blocks(18))
    told = {"role": "assistant", "content": [{"type": "text", "text": "That was it."}]}
    asked = {"role": "user", "content": [{"type": "text", "text": "Thank you."}]}
    second = sent(proxy, server, marked([*blocks(18), told, asked], -3, -1), path)
    assert begins(second, first)
    assert compactions(proxy) == len(kept(store)) == 1


def test_a_date_that_changes_in_the_system_prompt_does_not_lose_the_conversation(
    proxy: Proxy, server: Roomy, store: MemoryStore
) -> None:
    history = worked(14, operator="Today is Sunday, 22 November.")
    first = sent(proxy, server, history)
    later = worked(15, operator="Today is Monday, 23 November.")
    second = sent(proxy, server, later)
    assert begins(second, first, system=False)
    assert second.fields["messages"][0]["content"] == "Today is Monday, 23 November."
    assert compactions(proxy) == len(kept(store)) == 1


def test_a_system_prompt_beside_the_messages_may_change(
    proxy: Proxy, server: Roomy, store: MemoryStore
) -> None:
    path = "/v1/messages"
    first = sent(proxy, server, blocks(18), path, system="Today is Sunday.")
    second = sent(proxy, server, blocks(18), path, system="Today is Monday.")
    assert second.fields["messages"] == first.fields["messages"]
    assert second.fields["system"] == "Today is Monday."
    assert compactions(proxy) == len(kept(store)) == 1


def test_reasoning_that_is_dropped_does_not_lose_the_conversation(
    proxy: Proxy, server: Roomy, store: MemoryStore
) -> None:
    first = sent(proxy, server, worked(14, thinks=True))
    second = sent(proxy, server, worked(14, thinks=False))
    assert plain(second.fields["messages"]) == plain(first.fields["messages"])
    assert b"reasoning_content" not in second.body
    assert compactions(proxy) == len(kept(store)) == 1


def test_the_ids_of_calls_are_kept_and_every_result_has_its_call(
    proxy: Proxy, server: Roomy
) -> None:
    history = worked(14)
    messages = sent(proxy, server, history).fields["messages"]
    calls = [call["id"] for m in messages for call in m.get("tool_calls") or ()]
    results = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
    assert calls == results
    assert calls[-1] == "call_13"
    assert messages[-2:] == history[-2:]


def test_the_same_history_comes_out_in_the_same_bytes_in_a_new_process(
    server: Roomy, store: MemoryStore
) -> None:
    bodies: list[bytes] = []
    for _ in range(2):
        with proxied(server.root_url, store=store, rules=(ModelRule(window=WINDOW),)) as proxy:
            bodies.append(sent(proxy, server, worked(14)).body)
    assert bodies[0] == bodies[1]
    assert len(kept(store)) == 1


def test_an_altered_message_gives_up_only_the_checkpoints_behind_it(
    proxy: Proxy, server: Roomy, store: MemoryStore
) -> None:
    first = sent(proxy, server, worked(14))
    turn = 15
    while len(kept(store)) == 1:
        sent(proxy, server, worked(turn))
        turn += 1
    early, late = sorted(kept(store), key=lambda checkpoint: checkpoint.count)
    altered = worked(15)
    assert early.count <= len(worked(14)) < late.count
    altered[-1]["content"] = "file 14: nothing to be read"
    again = sent(proxy, server, altered)
    assert begins(again, first)
    assert again.fields["messages"][-1] == altered[-1]
    assert len(kept(store)) == 2

    altered = worked(14)
    altered[3]["content"] = f"file 0: something else. {PROSE * 5}"
    other = sent(proxy, server, altered)
    assert len(kept(store)) == 3
    assert other.fields["messages"][-1] == altered[-1]


@pytest.mark.parametrize(
    "apart",
    [
        lambda name: {"authorization": f"Bearer sk-{name}"},
        lambda name: {"x_api_key": f"sk-{name}"},
        lambda name: {"authorization": "Bearer sk-one", "x_ullage_session": name},
    ],
    ids=["bearer", "api-key", "session"],
)
def test_two_keys_or_sessions_never_share_what_was_compacted(
    proxy: Proxy, server: Roomy, store: MemoryStore, apart: Callable[[str], dict[str, str]]
) -> None:
    """The second comes to the same history another way, so its own plan is another one."""
    sent(proxy, server, worked(24), **apart("alpha"))
    hers = kept(store)
    sent(proxy, server, worked(14), **apart("beta"))
    for turns in range(15, 25):
        sent(proxy, server, worked(turns), **apart("beta"))
    his = [checkpoint for checkpoint in kept(store) if checkpoint not in hers]
    assert len(hers) == 1
    assert his
    assert not {c.scope for c in hers} & {c.scope for c in his}
    again = sent(proxy, server, worked(24), **apart("alpha"))
    assert again.body == server.prompts[0].body
    assert again.body != server.prompts[-2].body
    assert not any("sk-" in c.scope or "sk-" in repr(c) for c in kept(store))


def test_a_session_is_found_by_its_name_among_the_conversations(
    proxy: Proxy, server: Roomy
) -> None:
    sent(proxy, server, worked(2), x_ullage_session="review-7")
    assert [entry.id for entry in proxy.app.ledger.all()] == ["review-7"]
