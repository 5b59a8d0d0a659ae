"""Agno: a model that guards each of its calls, and its two parts.

The guard keeps its state in the state of Agno's session, so Agno's database carries it to the next
process. Agno's messages have the form of Chat Completions for every provider.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextvars import ContextVar
from copy import copy
from typing import Any

from agno.models.base import Model
from agno.models.message import Message
from agno.run.base import RunContext
from agno.tools.function import Function
from agno.utils.openai import images_to_message

from ullage.integrations.adapter import Adapter, Fitted, GuardedSession, MessageForm
from ullage.integrations.reports import find_output, report_chat
from ullage.integrations.streaming import aopen_stream, open_stream

__all__ = ["AgnoGuard", "find_window", "make_counter"]


def write_message(message: Message) -> list[Any]:
    """Return a message as Chat Completions has it."""
    content = message.content or ""
    if message.images and isinstance(content, str):
        content = [{"type": "text", "text": content}, *images_to_message(images=message.images)]
    made: dict[str, Any] = {"role": message.role, "content": content}
    if message.tool_calls:
        made["tool_calls"] = message.tool_calls
    if message.tool_call_id:
        made["tool_call_id"] = message.tool_call_id
    return [made]


def read_message(raws: Sequence[Any], source: Message | None) -> Message:
    """Return an edited message as one of Agno's; parts without edits stay as they were."""
    raw, content = raws[0], raws[0].get("content")
    if source is None:
        return Message(role=raw["role"], content=content)
    changed: dict[str, Any] = {"content": content, "tool_calls": raw.get("tool_calls")}
    if source.images and isinstance(content, list):
        texts = [part["text"] for part in content if part["type"] == "text"]
        changed["content"] = "\n".join(texts)
        changed["images"] = source.images if len(texts) < len(content) else None
    return source.model_copy(update=changed)


FORM = MessageForm(write_message, read_message)


def find_window(model: Model, **options: Any) -> int | None:
    """Return the window of a model for `Compaction(compact_at_tokens=)`, or None if unknown."""
    return Adapter(FORM, **options).open(**_describe(model)).window


def make_counter(model: str | None = None) -> Callable[..., int]:
    """Return a `token_counter=` for Agno's `Compaction`."""
    adapter = Adapter(FORM, model)
    return lambda messages, _=None: adapter.count(messages)


class AgnoGuard:
    """Keep each call of a model inside its window; `options` are those of `ullage.Guard`.

    `Agent(model=guard.wrap(model), tools=guard.tools, pre_hooks=[guard.begin])`: if you omit the
    hook, no state passes between processes; if you omit the tools, the model cannot read the text
    that was left out.
    """

    def __init__(self, model: str | None = None, **options: Any) -> None:
        self.adapter = Adapter(FORM, model, **options)
        self._current: ContextVar[Any] = ContextVar("session")
        self._states: dict[str | None, dict[str, Any]] = {}
        made = self.adapter.make_functions(self._current.get)
        self.tools = [
            Function(
                name=spec.name,
                description=spec.description,
                parameters=dict(spec.parameters),
                entrypoint=function,
                skip_entrypoint_processing=True,
            )
            for spec, function in made
        ]

    def __deepcopy__(self, memo: dict[int, Any]) -> AgnoGuard:
        return self  # agents copy their models: the copies share what was compacted

    def wrap(self, model: Model) -> Model:
        """Return a guarded copy of the model: a subclass of its class, with the same client."""
        made = copy(model)
        made.__class__ = type(type(model).__name__, (_Guarded, type(model)), {"guard": self})
        return made

    def begin(self, run_context: RunContext) -> None:
        """Take in the session's state: a pre-hook of an agent or team."""
        if run_context.session_state is not None:
            self._states[run_context.session_id] = run_context.session_state

    def ask(self, model: Model, request: dict[str, Any], send: Callable[..., Any]) -> Any:
        """Return the session of a request and the arguments of its call."""
        name = getattr(request.get("run_response"), "session_id", None)
        session = self.adapter.open(name, **_describe(model))
        session.load(self._states.get(name, {}).get("ullage"))
        self._current.set(session)
        beside = {"tools": request.get("tools"), "reserve": find_output(model)}
        return session, (
            lambda fitted: send(**{**request, "messages": fitted.messages}),
            request["messages"],
            beside,
        )

    def keep(self, session: GuardedSession[Message], fitted: Fitted[Message]) -> None:
        """Write the compactions into the session's state, which Agno keeps."""
        if fitted.is_new and session.name in self._states:
            self._states[session.name]["ullage"] = session.dump()


class _Guarded(Model):
    """A model's class, guarded; Agno calls these four methods with keyword arguments only."""

    guard: AgnoGuard

    def invoke(self, **request: Any) -> Any:
        session, asked = self.guard.ask(self, request, super().invoke)
        answer, fitted = session.call(*asked, report=_report)
        self.guard.keep(session, fitted)
        return answer

    async def ainvoke(self, **request: Any) -> Any:
        session, asked = self.guard.ask(self, request, super().ainvoke)
        answer, fitted = await session.acall(*asked, report=_report)
        self.guard.keep(session, fitted)
        return answer

    def invoke_stream(self, **request: Any) -> Iterator[Any]:
        session, asked = self.guard.ask(self, request, super().invoke_stream)
        events, fitted = open_stream(session, *asked, report=_report)
        self.guard.keep(session, fitted)
        yield from events

    async def ainvoke_stream(self, **request: Any) -> AsyncIterator[Any]:
        session, asked = self.guard.ask(self, request, super().ainvoke_stream)
        events, fitted = await aopen_stream(session, *asked, report=_report)
        self.guard.keep(session, fitted)
        async for event in events:
            yield event


def _describe(model: Model) -> dict[str, Any]:
    url = getattr(model, "base_url", None)
    if url is None and model.provider == "OpenAI":
        url = os.environ.get("OPENAI_BASE_URL")  # as its client does
    return {
        "model": model.id,
        "base_url": None if url is None else str(url),
        "api_key": getattr(model, "api_key", None),
    }


def _report(answer: Any) -> Any:
    usage = answer.response_usage
    if not usage or not usage.input_tokens:
        return None
    prompt, cached = usage.input_tokens, usage.cache_read_tokens
    if cached > prompt:  # Anthropic does not count cached tokens as input
        prompt += cached + usage.cache_write_tokens
    return report_chat(prompt, usage.output_tokens, cached)
