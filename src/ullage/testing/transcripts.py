"""Hypothesis strategies of OpenAI Chat histories: lawful ones, and ones broken in a known way.

For laws over generated conversations. What is lawful here is built so, not checked: these
strategies use none of the package's own code, so that they can find its faults.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from hypothesis import strategies as st

Message: TypeAlias = dict[str, Any]
History: TypeAlias = list[Message]
End = Literal["user", "assistant", "tool"]

WORDS: Final = (
    "ullage",
    "window",
    "tokens",
    "deploy the build",
    "never touch main.py",
    "12 passed, 0 failed",
    "zażółć gęślą jaźń",
    "上下文窗口",
    "🧪",
    "<|endoftext|>",
)
"""What longer texts are made of: plain words, a rule, other scripts, a special token."""

TOOLS: Final = ("read_file", "shell", "search")


def texts(*, max_words: int = 60) -> st.SearchStrategy[str]:
    """Return texts: short ones of any characters, and one phrase up to `max_words` times."""
    repeated = st.builds(_repeat, st.sampled_from(WORDS), st.integers(1, max_words))
    return st.one_of(repeated, st.text(max_size=24))


def histories(
    *,
    max_turns: int = 8,
    single_user: bool | None = None,
    end: End | None = None,
    unique_ids: bool = True,
) -> st.SearchStrategy[History]:
    """Return lawful histories of up to `max_turns` turns, each with up to three tool steps.

    `single_user` True gives autonomous runs (one user message, then tool steps), False ordinary
    conversations, None both. `end` is the role of the last message; None leaves it open. With
    `unique_ids` False a later response may use the call ids of an earlier one again.
    """
    return _histories(max_turns=max_turns, single_user=single_user, end=end, unique_ids=unique_ids)


def broken_histories(*, max_turns: int = 4) -> st.SearchStrategy[History]:
    """Return histories with one to three faults of pairing, at most one a response.

    The faults: an orphan result, a missing result, a duplicate result, a result behind its turn,
    a call id used twice in one response.
    """
    return _broken(max_turns)


def _repeat(word: str, times: int) -> str:
    return " ".join([word] * times)


def _text_part(text: str) -> Message:
    return {"type": "text", "text": text}


def _seldom(draw: st.DrawFn, one_in: int) -> bool:
    """Return True now and then; shrinks to False."""
    return draw(st.integers(0, one_in - 1)) == one_in - 1


TEXTS: Final = texts()
OUTPUTS: Final = texts(max_words=300)
EXTRAS: Final[st.SearchStrategy[Message]] = st.sampled_from(
    [{}, {}, {}, {"x_trace": "t-1"}, {"cache_control": {"type": "ephemeral"}}]
)
"""Keys that a caller may have put beside a message and that must survive."""

FOREIGN: Final[st.SearchStrategy[Message]] = st.sampled_from(
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "x_unheard_of", "payload": [1, {"deep": None}]},
    ]
)
"""Parts that are no text: an image, a sound, a file, a type nobody knows."""

SAID: Final[st.SearchStrategy[Message]] = st.sampled_from(
    [{}, {"content": None}, {"content": ""}, {"content": "let me look"}]
)
"""What a response says beside its calls."""

ARGUMENTS: Final = st.one_of(
    st.sampled_from(['{"path": "src/a.py"}', '{"path": "docs/b.md"}', "", "not json", "[1]"]),
    st.integers(1, 80).map(lambda n: '{"path": "src/c.py", "text": "' + "x y " * n + '"}'),
)


def _user(draw: st.DrawFn) -> Message:
    content: Any = draw(TEXTS)
    if _seldom(draw, 4):
        content = [_text_part(content), draw(FOREIGN)]
    name = {"name": "ada"} if _seldom(draw, 6) else {}
    return {"role": "user", "content": content, **name, **draw(EXTRAS)}


def _operator(draw: st.DrawFn) -> Message:
    role = draw(st.sampled_from(["system", "developer"]))
    return {"role": role, "content": draw(TEXTS), **draw(EXTRAS)}


def _answer(draw: st.DrawFn) -> Message:
    if _seldom(draw, 10):
        return {"role": "assistant", "content": None, "refusal": draw(TEXTS)}
    content: Any = draw(TEXTS)
    if _seldom(draw, 6):
        content = [_text_part(content), _text_part("and so on")]
    return {"role": "assistant", "content": content, **draw(EXTRAS)}


def _call(draw: st.DrawFn, name: str) -> Message:
    function = {"name": draw(st.sampled_from(TOOLS)), "arguments": draw(ARGUMENTS)}
    return {"id": name, "type": "function", "function": function}


def _result(draw: st.DrawFn, name: str) -> Message:
    content: Any = draw(OUTPUTS)
    if _seldom(draw, 8):
        content = [_text_part(content)]
    return {"role": "tool", "tool_call_id": name, "content": content, **draw(EXTRAS)}


def _step(draw: st.DrawFn, first: int) -> History:
    """Return a response with one to three calls, numbered from `first`, and their results."""
    ids = [f"call_{first + i}" for i in range(draw(st.integers(1, 3)))]
    calls = [_call(draw, name) for name in ids]
    said = draw(SAID)
    turned = draw(st.integers(0, len(ids) - 1))
    results = [_result(draw, name) for name in ids[turned:] + ids[:turned]]
    return [{"role": "assistant", **said, "tool_calls": calls}, *results]


@st.composite
def _histories(
    draw: st.DrawFn,
    *,
    max_turns: int,
    single_user: bool | None,
    end: End | None,
    unique_ids: bool,
) -> History:
    single = draw(st.booleans()) if single_user is None else single_user
    last = draw(st.sampled_from(["user", "assistant", "tool"])) if end is None else end
    turns = 1 if single and last == "user" else draw(st.integers(1, max_turns))
    history = [_operator(draw) for _ in range(draw(st.integers(0, 2)))]
    history += [_answer(draw)] if _seldom(draw, 8) else []
    used = 0
    for turn in range(turns):
        final = turn == turns - 1
        if turn == 0 or not single:
            history.append(_user(draw))
        if final and last == "user":
            break
        for _ in range(draw(st.integers(final and last == "tool", 3))):
            step = _step(draw, used if unique_ids or _seldom(draw, 2) else 0)
            history += step
            used += len(step)
        if (final and last == "assistant") or (not final and draw(st.booleans())):
            history.append(_answer(draw))
        if not final and _seldom(draw, 12):
            history.append(_operator(draw))
    return history


Fault = Literal["orphan", "missing", "duplicate", "misplaced", "same_id"]


@st.composite
def _broken(draw: st.DrawFn, max_turns: int) -> History:
    history = [dict(m) for m in draw(histories(max_turns=max_turns, end="tool"))]
    responses = [i for i, m in enumerate(history) if m.get("tool_calls")]
    asked = [[call["id"] for call in history[i]["tool_calls"]] for i in responses]
    chosen = draw(
        st.lists(st.sampled_from(asked), min_size=1, max_size=3, unique_by=lambda a: a[0])
    )
    for ids in chosen:
        fault: Fault = draw(
            st.sampled_from(["orphan", "missing", "duplicate", "misplaced", "same_id"])
        )
        _break(history, fault, draw(st.sampled_from(ids)), draw(st.integers(0, 99)))
    return history


def _break(history: History, fault: Fault, call: str, chance: int) -> None:
    """Put one fault into a history, at the response that asked for `call`."""
    result = next(i for i, m in enumerate(history) if m.get("tool_call_id") == call)
    if fault == "orphan":
        place = chance % (len(history) + 1)
        stray = {"role": "tool", "tool_call_id": f"nobody_{call}", "content": "stray"}
        history.insert(place, stray)
    elif fault == "missing":
        del history[result]
    elif fault == "duplicate":
        history.insert(result + 1, {**history[result], "content": "again"})
    elif fault == "misplaced":
        moved = history.pop(result)
        history += [{"role": "user", "content": "and now?"}, moved]
    else:
        response = next(
            i
            for i, m in enumerate(history)
            if any(c["id"] == call for c in m.get("tool_calls", ()))
        )
        twin = {"id": call, "type": "function", "function": {"name": "shell", "arguments": "{}"}}
        calls = [*history[response]["tool_calls"], twin]
        history[response] = {**history[response], "tool_calls": calls}
        if chance % 2:
            history.insert(result + 1, {**history[result], "content": "the twin's"})
