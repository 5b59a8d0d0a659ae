"""The real embedded model as a summarizer: whatever it writes, nothing that people said is lost."""

from __future__ import annotations

import pytest

import ullage
from tests.support.shapes import list_theirs, read_shapes
from ullage.core.compaction.block import gather
from ullage.core.compaction.score import SaidScore
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.embedded import Launch, Server, find_cached
from ullage.runtime import Runtime

GUESTS = ("Mirela", "Kofi", "Beatriz", "Noor", "Jonas", "Ayumi", "Priya", "Oskar", "Lena", "Tomek")
TALK = [
    message
    for n, name in enumerate(GUESTS)
    for message in (
        {"role": "user", "content": f"{name} found the accordion of shelf {n + 20}."},
        {"role": "assistant", "content": "I looked, and it is all rather dusty there. " * 9},
    )
]
HISTORY = [*TALK, {"role": "user", "content": "What is next?"}]


@pytest.mark.slow
@pytest.mark.smollm2
@pytest.mark.parametrize("target", [500, pytest.param(800, marks=pytest.mark.long)])
def test_a_small_real_model_makes_no_compaction_worse(target: int) -> None:
    model = find_cached("smollm2-135m")
    if model is None:
        pytest.skip("SmolLM2 is not in the cache; `make demo` fetches it")
    asked: list[str] = []
    words = gather(OpenAIChat().read(HISTORY).messages)
    score = SaidScore(words.facts, words.words)
    with Server(model, Launch(window=4096)) as running:
        small = ullage.Summarizer(
            "smollm2-135m", base_url=running.base_url, max_tokens=64, runtime=Runtime()
        )

        def ask(request: ullage.SummaryRequest) -> str:
            asked.append(request.prompt)
            return small(request).text

        made = ullage.compact(HISTORY, target_tokens=target, model="gpt-4o", summarizer=ask)
    bare = ullage.compact(HISTORY, target_tokens=target, model="gpt-4o", summarizer=lambda _: "")
    assert made.outcome.reached
    judged = [score.judge("\n".join(m["content"] for m in c.messages)) for c in (made, bare)]
    assert judged[0] >= judged[1] > 0
    assert asked
    assert all(prompt.startswith("<sentences>\nuser: ") for prompt in asked)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.smollm2
def test_what_was_pasted_is_no_rule_though_a_real_model_writes_of_it() -> None:
    model = find_cached("smollm2-135m")
    if model is None:
        pytest.skip("SmolLM2 is not in the cache; `make demo` fetches it")
    shapes = read_shapes("pasted.txt")[::5]
    said: list[dict[str, str]] = []
    asked: list[str] = []
    with Server(model, Launch(window=4096)) as running:
        small = ullage.Summarizer(
            "smollm2-135m", base_url=running.base_url, max_tokens=48, runtime=Runtime()
        )

        def ask(request: ullage.SummaryRequest) -> str:
            asked.append(request.prompt)
            return small(request).text

        for turn in range(3):
            before = len(asked)
            for shape in shapes[turn::3]:
                said += [{"role": "user", "content": shape.text}]
                said += [{"role": "assistant", "content": "I looked, and it is dusty. " * 9}]
            said += [{**m, "content": f"{m['content']} Week {turn}."} for m in TALK]
            said.append({"role": "user", "content": "What is next?"})
            made = ullage.compact(said, target_tokens=1_500, model="gpt-4o", summarizer=ask)
            said = [*made.messages, {"role": "assistant", "content": "Shelf 3 is."}]
            assert len(asked) > before
    assert len(shapes) >= 10
    block = next(m["content"] for m in said if "facts kept by rule" in m["content"])
    theirs = list_theirs(block)
    assert not [canary for shape in shapes for canary in shape.canaries if canary in theirs]
    written = " ".join(" ".join(m["content"] for m in said).split())
    assert not [rule for shape in shapes for rule in shape.rules if rule not in written]
