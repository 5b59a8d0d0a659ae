"""Results with images, and what a caller's strategy wrote: sizes and names hold for them, too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ullage
from ullage import edits

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9Q"
    "DwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
MODEL = "claude-sonnet-4-5"


def looked(steps: int) -> list[dict[str, Any]]:
    """Return steps whose results have a text and an image."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "Look at each page."}]
    for step in range(steps):
        use = {"type": "tool_use", "id": f"t{step}", "name": "look", "input": {"page": step}}
        seen = [{"type": "text", "text": f"page {step} " * 60}, IMAGE]
        result = {"type": "tool_result", "tool_use_id": f"t{step}", "content": seen}
        history.append({"role": "assistant", "content": [use]})
        history.append({"role": "user", "content": [result]})
    return [
        *history,
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "And?"},
    ]


def test_images_that_go_with_their_results_are_counted_and_the_target_is_filled() -> None:
    history = looked(60)
    whole = ullage.count(history, model=MODEL).high
    for share in (0.4, 0.6, 0.8):
        target = int(whole * share)
        made = ullage.compact(history, model=MODEL, target_tokens=target)
        assert 0.9 * target <= made.after.high <= target
        assert ullage.count(made.messages, model=MODEL).high == made.after.high


def test_more_images_than_the_provider_takes_in_the_request_raise_nothing() -> None:
    images = [IMAGE] * 101
    request = [{"role": "user", "content": [*images, {"type": "text", "text": "What is it?"}]}]
    told: list[object] = []
    guard = ullage.Guard(MODEL, window=200_000, on_event=told.append, runtime=ullage.Runtime())
    assert guard.prepare(request, max_tokens=100).messages == request
    failed = [event for event in told if isinstance(event, ullage.events.CompactionFailed)]
    assert [event.strategy for event in failed] == ["strip_media"]


def test_what_was_cut_of_a_text_that_a_strategy_wrote_is_recalled_as_it_wrote_it(
    tmp_path: Path,
) -> None:
    def hide(situation: Any) -> Any:
        made = [
            edits.Clear(index, place, -1, part.text.replace("SECRET", "[hidden]"))
            for unit in situation.units
            for index in unit
            for place, part in enumerate(situation.transcript.messages[index].parts)
            if "SECRET" in part.text and index not in situation.pins
        ]
        return edits.Script.of(made)

    hiding = ullage.Strategy("hide", hide, drops=False, always=True)
    rung = ullage.Rung(0.8, 0.6, (hiding, "clear", "trim_oldest"))
    history: list[dict[str, Any]] = [{"role": "user", "content": "Run it."}]
    for step in range(12):
        function = {"name": "run", "arguments": "{}"}
        call = {"id": f"c{step}", "type": "function", "function": function}
        told = "SECRET " + f"row {step} of many " * 200
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append({"role": "tool", "tool_call_id": f"c{step}", "content": told})
    history.append({"role": "user", "content": "And now?"})
    store = ullage.open_store(f"sqlite:{tmp_path / 'texts.db'}")
    made = ullage.compact(
        history,
        model="gpt-4o",
        target_tokens=4_000,
        policy=ullage.Policy(rungs=(rung,)),
        store=store,
    )
    names = re.findall(r"u:[0-9a-f]{16}", str(made.messages))
    assert names
    assert all("[hidden] row" in ullage.recall(name, store=store) for name in names)
    store.close()
