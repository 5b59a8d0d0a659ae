"""smolagents: a model that guards each call of the model it wraps, and its two parts.

smolagents sends calls and their results as plain text, as assistant and user messages. This module
reads them as calls and results, so that a result does not count as the user's words. smolagents
keeps nothing between processes: the program keeps the state, with `session.dump` and
`session.load`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from smolagents import ChatMessage, MessageRole, Model, Tool
from smolagents.models import get_tool_json_schema
from smolagents.utils import encode_image_base64, make_image_url

from ullage.integrations.adapter import Adapter, Beside, Fitted, GuardedSession, MessageForm
from ullage.integrations.reports import find_output, report_chat
from ullage.integrations.streaming import open_stream

__all__ = ["SmolGuard", "find_window", "make_counter"]

Group = tuple[ChatMessage, ...]
"""One message, or a message with calls and the results after it."""

CALLS, RESULT = "Calling tools:\n", "Observation:\n"
"""The first words of texts of calls and of results (`ActionStep.to_messages`)."""

TASK: Final = "New task:\n"
"""The first words of a user message (`TaskStep.to_messages`). They are removed, because ullage
reads rules only from the user's own words."""


def group_messages(messages: Sequence[Any]) -> list[Group]:
    """Return messages in groups, each call with its results."""
    made: list[Group] = []
    for given in messages:
        message = ChatMessage.from_dict(dict(given)) if isinstance(given, dict) else given
        if message.role == MessageRole.TOOL_RESPONSE and made and read_calls(made[-1][0]):
            made[-1] += (message,)
        else:
            made.append((message,))
    return made


def read_calls(message: ChatMessage) -> tuple[dict[str, Any], ...]:
    """Return the calls that a message holds as text, in the form of Chat Completions."""
    text = _find_text(message.content) if message.role == MessageRole.TOOL_CALL else ""
    return _parse_calls(text.removeprefix(CALLS)) if text.startswith(CALLS) else ()


@lru_cache(1024)
def _parse_calls(text: str) -> tuple[dict[str, Any], ...]:
    try:
        calls = ast.literal_eval(text)
        return tuple(
            {
                **c,
                "function": {**c["function"], "arguments": json.dumps(c["function"]["arguments"])},
            }
            for c in calls
        )
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError):
        return ()  # arguments that are not literals: keep the text


def write_group(group: Group) -> list[Any]:
    """Return messages as Chat Completions has them."""
    first, *results = group
    calls = read_calls(first) if results else ()
    if not calls:
        role = {MessageRole.TOOL_CALL: "assistant", MessageRole.TOOL_RESPONSE: "user"}
        return [
            {
                "role": role.get(m.role, str(m.role.value)),
                "content": _strip_task(m.role, _write_content(m.content)),
            }
            for m in group
        ]
    texts = [_find_text(message.content).removeprefix(RESULT) for message in results]
    texts = ["\n".join(texts), *[""] * (len(calls) - 1)]  # smolagents has one text for all calls
    return [
        {"role": "assistant", "content": None, "tool_calls": list(calls)},
        *(
            {"role": "tool", "tool_call_id": call["id"], "content": text}
            for call, text in zip(calls, texts, strict=True)
        ),
    ]


def read_group(raws: Sequence[Any], source: Group | None) -> Group:
    """Return edited messages as smolagents has them; parts without edits stay as they were."""
    if source is None or not read_calls(source[0]) or len(source) == 1:
        role = MessageRole(raws[0]["role"]) if source is None else source[0].role
        content = raws[0]["content"]
        parts = _make_text(content) if isinstance(content, str) else content
        if source is not None and _is_task(source[0].role, source[0].content):
            parts = [{**parts[0], "text": TASK + parts[0]["text"]}, *parts[1:]]
        return (replace(source[0] if source else ChatMessage(role), content=parts),)
    calls = [call for raw in raws for call in raw.get("tool_calls") or ()]
    texts = [raw["content"] for raw in raws if raw["role"] == "tool" and raw["content"]]
    named = [
        {**c, "function": {**c["function"], "arguments": json.loads(c["function"]["arguments"])}}
        for c in calls
    ]
    same = calls == list(read_calls(source[0]))
    return (
        source[0] if same else replace(source[0], content=_make_text(f"{CALLS}{named}")),
        replace(source[1], content=_make_text(RESULT + "\n".join(texts))),
    )


def _is_task(role: MessageRole, content: Any) -> bool:
    """Tell whether it is a user message that begins with the framework's own words."""
    if role != MessageRole.USER or not isinstance(content, list) or not content:
        return False
    return str(content[0].get("text", "")).startswith(TASK)


def _strip_task(role: MessageRole, content: Any) -> Any:
    if not _is_task(role, content):
        return content
    return [{**content[0], "text": content[0]["text"].removeprefix(TASK)}, *content[1:]]


def _make_text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


def _find_text(content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(part.get("text", "") for part in content)


def _write_content(content: Any) -> Any:
    if isinstance(content, str) or content is None:
        return content or ""
    return [
        {"type": "image_url", "image_url": {"url": make_image_url(encode_image_base64(p["image"]))}}
        if p["type"] == "image"
        else p
        for p in content
    ]


FORM = MessageForm(write_group, read_group)


def find_window(model: Model, **options: Any) -> int | None:
    """Return the tokens that a model takes as input, or None if unknown."""
    return Adapter(FORM, **options).open(**_describe(model)).window


def make_counter(model: str | None = None) -> Callable[[Sequence[Any]], int]:
    """Return a function that counts messages, for step callbacks."""
    adapter = Adapter(FORM, model)
    return lambda messages: adapter.count(group_messages(messages))


class SmolGuard(Model):
    """Keep each call of a model inside its window; `options` are those of `ullage.Guard`.

    `model` may change while an agent runs. Give `tools` to the agent if it should read and search
    the text that was left out.
    """

    def __init__(self, model: Model, *, name: str | None = None, **options: Any) -> None:
        self.model = model
        self.name = name
        self.adapter = Adapter(FORM, **options)
        made = self.adapter.make_functions(lambda: self.session)
        self.tools = [_make_tool(spec, function) for spec, function in made]

    def __getattr__(self, name: str) -> Any:
        if name == "model":  # not set yet while an object is copied or unpickled
            raise AttributeError(name)
        found = getattr(self.model, name)
        return self._stream if name == "generate_stream" else found

    @property
    def session(self) -> GuardedSession[Group]:
        """The conversation with the model; if it has a name, it can `dump` and `load`."""
        return self.adapter.open(self.name, **_describe(self.model))

    def generate(self, messages: Sequence[Any], *args: Any, **options: Any) -> ChatMessage:
        """Send what fits, and retry once after an overflow."""
        answer, _ = self.session.call(
            lambda fitted: self.model.generate(_flatten(fitted), *args, **options),
            group_messages(messages),
            self._find_beside(options),
            report=lambda made: _report(made.token_usage),
        )
        return answer

    def parse_tool_calls(self, message: ChatMessage) -> ChatMessage:
        """Let the model parse the calls in a text."""
        return self.model.parse_tool_calls(message)

    def _stream(self, messages: Sequence[Any], *args: Any, **options: Any) -> Iterator[Any]:
        events, _ = open_stream(
            self.session,
            lambda fitted: self.model.generate_stream(_flatten(fitted), *args, **options),
            group_messages(messages),
            self._find_beside(options),
            report=lambda event: _report(event.token_usage),
        )
        yield from events

    def _find_beside(self, options: dict[str, Any]) -> Beside:
        tools = self.adapter.define(options.get("tools_to_call_from"), get_tool_json_schema)
        asked = find_output(options, getattr(self.model, "kwargs", None))
        return {"tools": tools, "reserve": asked}


def _flatten(fitted: Fitted[Group]) -> list[ChatMessage]:
    return list(chain.from_iterable(fitted.messages))


def _report(usage: Any) -> Any:
    return usage and report_chat(usage.input_tokens, usage.output_tokens)


def _describe(model: Model) -> dict[str, Any]:
    client = getattr(model, "client_kwargs", {})
    url = getattr(getattr(model, "client", None), "base_url", None)  # the URL that its client chose
    return {
        "model": model.model_id,
        "base_url": getattr(model, "api_base", None) or (str(url) if url else None),
        "api_key": client.get("api_key") or getattr(model, "api_key", None),
    }


def _make_tool(spec: Any, function: Callable[..., str]) -> Tool:
    inputs = {
        name: {"type": kind["type"], "description": kind.get("description", name)}
        | ({} if name in spec.parameters["required"] else {"nullable": True})
        for name, kind in spec.parameters["properties"].items()
    }
    named = {"name": spec.name, "description": spec.description, "inputs": inputs}
    rest = {"output_type": "string", "skip_forward_signature_validation": True}
    forward = staticmethod(function)
    return type("RecallTool", (Tool,), {**named, **rest, "forward": forward})()
