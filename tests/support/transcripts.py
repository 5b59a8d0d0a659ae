"""Hypothesis strategies of histories: lawful ones, and ones broken in a known way.

Written as OpenAI Chat; `responses` and `anthropic` put such a history into the two other
dialects, lawful ones lawfully, with forms that only those have. For laws over generated
conversations. What is lawful here is built so, not checked: these strategies use none of the
package's own code, so that they can find its faults.
"""

from __future__ import annotations

from collections.abc import Mapping
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


# --- the other dialects ---------------------------------------------------------------------------


def responses_histories(**options: Any) -> st.SearchStrategy[History]:
    """Return lawful inputs of the Responses API; options as in `histories`."""
    return _written(histories(**options), responses)


def anthropic_histories(**options: Any) -> st.SearchStrategy[History]:
    """Return lawful Anthropic messages, operator text left out; options as in `histories`.

    Call ids are unique: the API refuses others.
    """
    return _written(histories(**options), anthropic)


def broken_responses(*, max_turns: int = 4) -> st.SearchStrategy[History]:
    """Return inputs of the Responses API with the faults of `broken_histories`."""
    return _written(broken_histories(max_turns=max_turns), responses)


def broken_anthropic(*, max_turns: int = 4) -> st.SearchStrategy[History]:
    """Return Anthropic messages with the faults of `broken_histories`, and two of their own.

    These are: words in front of results, and a history that lost its beginning.
    """
    return _written(broken_histories(max_turns=max_turns), anthropic, lost=True)


@st.composite
def _written(draw: st.DrawFn, chat: Any, write: Any, *, lost: bool = False) -> History:
    history: History = write(draw(chat), draw(st.integers(0, 2**16)))
    if lost and _seldom(draw, 3):
        history = [_turned(message) for message in history]
    start = draw(st.integers(0, 2)) if lost and _seldom(draw, 3) else 0
    return history[start:] or history


def _turned(message: Message) -> Message:
    """Return an Anthropic message of results and words with the words in front."""
    return {**message, "content": message["content"][::-1]} if _holds_results(message) else message


def responses(history: History, chance: int = 0) -> History:
    """Return a Chat history as items of the Responses API; `chance` picks among their forms."""
    items: History = []
    for place, message in enumerate(history):
        pick = (chance >> (place % 16)) & 1
        if message["role"] == "tool":
            output: Any = _plain_text(message)
            if pick and place % 3 == 0:
                output = [{"type": "input_text", "text": output}, dict(PICTURE)]
            name = message["tool_call_id"]
            items.append({"type": "function_call_output", "call_id": name, "output": output})
            continue
        asked = message.get("tool_calls", ())
        text = _plain_text(message)
        if text or not asked:
            items += [{"type": "reasoning", "id": f"rs_{place}", "summary": []}] * (
                pick if message["role"] == "assistant" else 0
            )
            items.append(_item(message["role"], text, pick, place))
        for position, call in enumerate(asked):
            if pick and position == 0:
                thought = [{"type": "summary_text", "text": "which file?"}]
                items.append({"type": "reasoning", "id": f"rs_{place}c", "summary": thought})
            items.append({"type": "function_call", "call_id": call["id"], **call["function"]})
    return items


PICTURE: Final[Mapping[str, Any]] = {
    "type": "input_image",
    "image_url": "data:image/gif;base64,R0lGODlhAwAFAAAAACwAAAAAAwAFAAACAoRRADs=",
    "detail": "auto",
}


def _item(role: str, text: str, pick: int, place: int) -> Message:
    if role == "assistant":
        said = {"type": "output_text", "text": text, "annotations": []}
        done = {"id": f"msg_{place}", "status": "completed"}
        return {"type": "message", "role": role, "content": [said], **done}
    content: Any = [{"type": "input_text", "text": text}] if pick else text
    return {"role": role, "content": content, **({"type": "message"} if pick else {})}


def anthropic(history: History, chance: int = 0) -> History:
    """Return a Chat history as Anthropic messages; `chance` picks among their forms.

    Results that follow each other share a message; now and then what the user says next is in
    it too.
    """
    messages: History = []
    for place, message in enumerate(history):
        pick = (chance >> (place % 16)) & 1
        role, last = message["role"], messages[-1] if messages else None
        if role in ("system", "developer"):
            continue
        if not messages and role == "assistant" and not message.get("tool_calls"):
            continue
        held = last is not None and _holds_results(last)
        if role == "tool":
            result = _tool_result(message, pick, place)
            if held and last is not None and last["content"][-1]["type"] == "tool_result":
                last["content"].append(result)
            else:
                messages.append({"role": "user", "content": [result]})
        elif role == "assistant":
            messages.append({"role": role, "content": _response(message, pick)})
        elif held and pick and last is not None:
            last["content"].append(_text_part(_plain_text(message) or "and?"))
        else:
            messages.append({"role": role, "content": _user_content(message, pick)})
    return messages or [{"role": "user", "content": "hello"}]


def _holds_results(message: Message) -> bool:
    content = message["content"]
    return isinstance(content, list) and any(b["type"] == "tool_result" for b in content)


def _tool_result(message: Message, pick: int, place: int) -> Message:
    content: Any = _plain_text(message)
    if pick and place % 3 == 0:
        source = {"type": "base64", "media_type": "image/gif", "data": GIF}
        content = [_text_part(content or "-"), {"type": "image", "source": source}]
    marks = {"cache_control": {"type": "ephemeral"}} if "cache_control" in message else {}
    failed = {"is_error": True} if pick and place % 5 == 0 else {}
    name = message["tool_call_id"]
    return {"type": "tool_result", "tool_use_id": name, "content": content, **failed, **marks}


GIF: Final = "R0lGODlhAwAFAAAAACwAAAAAAwAFAAACAoRRADs="


def _response(message: Message, pick: int) -> Any:
    text, asked = _plain_text(message), message.get("tool_calls", ())
    if not asked and not pick:
        return text or "-"
    thought = {"type": "thinking", "thinking": "which file?", "signature": "c2ln"}
    blocks: History = [thought] if pick else []
    blocks += [_text_part(text or "-")] if text or not asked else []
    for call in asked:
        function = call["function"]
        given = {"given": function["arguments"]}
        use = {"type": "tool_use", "id": call["id"], "name": function["name"], "input": given}
        blocks.append(use)
    return blocks


def _user_content(message: Message, pick: int) -> Any:
    text = _plain_text(message) or "-"
    if not pick:
        return text
    return [{**_text_part(text), "cache_control": {"type": "ephemeral"}}]


def _plain_text(message: Message) -> str:
    """Return the text of a Chat message; media are for the Chat strategies."""
    content = message.get("content") or message.get("refusal") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)
