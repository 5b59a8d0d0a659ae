"""Assertions on a conversation: it fits a window, it keeps the laws of a compaction.

A failure names the message and the law. No network is used unless a runtime is given: windows come
from the caller or from the bundled table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ullage.api.context import context
from ullage.config.settings import Settings
from ullage.core.compaction.laws import protocol
from ullage.core.messages.fields import json_text
from ullage.core.tokens.counting import Count
from ullage.runtime import Measurable, Runtime

NAMED: Final = 3
"""Number of the largest messages that are named if a conversation does not fit."""

WORDS: Final = 60
"""Most characters of a message that are shown."""


def assert_fits(
    messages: Sequence[Any],
    *,
    model: str | None = None,
    window: int | None = None,
    max_tokens: int = 0,
    runtime: Runtime | None = None,
    **request: Any,
) -> None:
    """Assert that a request fits a window, with `max_tokens` left for the answer.

    The upper edge of the count decides. `window` is in tokens; by default that of `model` is looked
    up. `request` holds further options of `ullage.context`: tools, system, dialect. Raises
    AssertionError that names the largest messages, or that says that the window is unknown.
    """
    shared = _find_runtime(runtime)
    found = context(messages, model=model, window=window, runtime=shared, **request)
    bound = found.window.input_tokens
    if bound is None:
        raise AssertionError(
            f"the window of {model or 'no model'} is unknown: give window=TOKENS, or the name of a "
            "model that the bundled table has"
        )
    used = found.report.used.high
    total = found.window.total_tokens or bound
    if used <= bound and used + max_tokens <= total:
        return
    room = f" and {max_tokens:,} for the answer" if max_tokens else ""
    report = found.to_dict()
    largest = [
        f"  messages[{row['message']}]: {row['tokens']:,} tokens, {row['name']}"
        for row in report["largest"][:NAMED]
        if row["message"] is not None
    ]
    said = (
        f"law 3 (fits) is broken: {used:,} tokens{room} in a window of {total:,} "
        f"({found.window.name_source()})"
    )
    raise AssertionError("\n".join([said, *largest]))


def assert_lawful(
    before: Sequence[Any],
    after: Sequence[Any] | None = None,
    *,
    window: int | None = None,
    pins: Iterable[int] = (),
    runtime: Runtime | None = None,
    **request: Any,
) -> None:
    """Assert that a history keeps its protocol, or that its compacted form keeps the laws.

    With one history: every call has its result, and the other rules of its dialect hold. With two,
    the second must keep the protocol (1), be no larger (2), fit `window` (3), contain the messages
    at the positions `pins` of the first unchanged (4), and have the messages of the first in their
    order and only once (5). `request` holds further options of `ullage.context`: model, tools,
    system, dialect. Raises AssertionError that names the message and the law.
    """
    shared, dialect = _find_runtime(runtime), request.get("dialect")
    checked = before if after is None else after
    for broken in protocol(shared.read(Measurable(checked, dialect=dialect)))[:1]:
        raise AssertionError(
            f"law 1 (protocol) is broken by {_name(checked, broken.message)}: {broken.detail}. "
            "ullage.repair(messages) mends it by rule"
        )
    if after is None:
        if window is not None:
            assert_fits(before, window=window, runtime=shared, **request)
        return
    sizes = [_measure(messages, shared, request) for messages in (before, after)]
    if sizes[1].tokens > sizes[0].tokens:
        raise AssertionError(
            f"law 2 (smaller) is broken: {sizes[0].tokens:,} tokens became {sizes[1].tokens:,}"
        )
    if window is not None:
        assert_fits(after, window=window, runtime=shared, **request)
    _check_kept(before, after, pins)


def _find_runtime(given: Runtime | None) -> Runtime:
    """Return the given runtime, or a new one that works offline."""
    return given if given is not None else Runtime(settings=Settings(offline=True))


def _measure(messages: Sequence[Any], shared: Runtime, request: dict[str, Any]) -> Count:
    return context(messages, window=1, runtime=shared, **request).report.used


def _check_kept(before: Sequence[Any], after: Sequence[Any], pins: Iterable[int]) -> None:
    """Check the messages that are in both: the pinned ones, and the order of all."""
    own, kept = [_write(one) for one in before], [_write(one) for one in after]
    for place in pins:
        if own[place] not in kept:
            raise AssertionError(
                f"law 4 (pins) is broken: {_name(before, place)} is pinned, and is not in the "
                "result as it was"
            )
    reached = -1
    for place, text in enumerate(kept):
        if text not in own:
            continue  # a new message, or one that was made smaller
        found = next((i for i in range(reached + 1, len(own)) if own[i] == text), None)
        if found is None:
            raise AssertionError(
                f"law 5 (untouched) is broken by {_name(after, place, 'the result')}: it is at "
                f"{own.index(text)} in the history, before messages that precede it in the result"
            )
        reached = found


def _write(message: Any) -> str:
    return json.dumps(json.loads(json_text(message, 0)), sort_keys=True)


def _name(messages: Sequence[Any], place: int | None, of: str = "messages") -> str:
    """Return a name for a message: its position and its first characters."""
    if place is None:
        return "the history"
    text = json_text(messages[place], place)
    shown = text if len(text) <= WORDS else f"{text[: WORDS - 1]}…"
    return f"{of}[{place}] {shown}"
