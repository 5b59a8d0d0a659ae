"""Microsoft Agent Framework: a context provider that guards each model call, and its parts.

It adds a chat middleware inside the tool loop, and tools that read the text that was left out. It
keeps its compactions in the session's state.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from copy import copy
from typing import Any

import agent_framework as af
from agent_framework import Content, Message

from ullage.integrations.adapter import Adapter, Beside, Fitted
from ullage.integrations.pieces import Piece, make_form
from ullage.integrations.reports import find_output, report_chat
from ullage.integrations.streaming import begin_stream

__all__ = ["ContextGuardProvider", "Tokenizer", "find_window"]


class _Messages:
    """The framework's messages, whose pieces are their contents."""

    def split(self, message: Message) -> tuple[str, list[Content]]:
        """Return role and contents."""
        return message.role, message.contents or [Content.from_text("")]

    def read(self, content: Content) -> Piece:
        """Return the content of a part; content that chat does not have is read as its JSON."""
        held: Any = content
        if held.type == "text":
            return Piece("text", held.text or "")
        if held.type == "function_call":
            asked = held.arguments or ""
            text = asked if isinstance(asked, str) else json.dumps(asked)
            return Piece("call", text, held.call_id, held.name)
        if held.type == "function_result":
            return Piece("result", str(held.result or ""), held.call_id)
        if held.type == "text_reasoning":
            return Piece("thought", held.text or held.protected_data or "")
        if held.type in ("data", "uri") and held.has_top_level_media_type("image"):
            return Piece("part", part={"type": "image_url", "image_url": {"url": held.uri}})
        return Piece("part", part={"type": held.type, "value": held.to_dict()})

    def make(self, piece: Piece, source: Content | None) -> Content:
        """Return a content."""
        if piece.kind == "result":
            return Content.from_function_result(piece.id, result=piece.text)
        if source is None or piece.kind != "call":
            return Content.from_text(piece.text)
        made = copy(source)
        made.arguments, made.call_id = piece.text, piece.id
        return made

    def build(self, role: str, contents: list[Content], source: Message | None) -> Message:
        """Return a message."""
        made = Message(role) if source is None else copy(source)
        made.contents = contents
        return made


FORM = make_form(_Messages())


def find_window(model: str, **options: Any) -> int | None:
    """Return a `max_context_window_tokens=` for the framework's strategies, None if unknown."""
    return Adapter(FORM, model, **options).open().window


class Tokenizer:
    """A `tokenizer=` for the framework's strategies."""

    def __init__(self, model: str | None = None) -> None:
        self._adapter = Adapter(FORM, model)

    def count_tokens(self, text: str) -> int:
        """Return the tokens of one message."""
        return self._adapter.count([Message("user", [text])])


class ContextGuardProvider(af.ContextProvider):
    """Keep each call of an agent's model inside its window; `options` are those of `ullage.Guard`.

    Put it last in `context_providers`. With `recall` the model gets tools that read and search the
    text that was left out.
    """

    def __init__(self, model: str | None = None, *, recall: bool = True, **options: Any) -> None:
        super().__init__("ullage")
        self.adapter = Adapter(FORM, model, **options)
        self._recall = recall

    async def before_run(
        self, *, session: Any, context: Any, state: dict[str, Any], **_: Any
    ) -> None:
        """Add the middleware and the tools to a run."""
        made = _Guarding(self.adapter, session.session_id, state)
        context.extend_middleware(self.source_id, made)
        if self._recall:
            context.extend_tools(self.source_id, made.make_tools())


class _Guarding(af.ChatMiddleware):
    """One run of an agent in one session."""

    def __init__(self, adapter: Adapter[Message], name: str, state: dict[str, Any]) -> None:
        self._adapter, self._name, self._state = adapter, name, state
        self._session = adapter.open(name)

    def make_tools(self) -> list[af.FunctionTool]:
        return [
            af.FunctionTool(
                name=spec.name,
                description=spec.description,
                func=function,
                input_model=dict(spec.parameters),
            )
            for spec, function in self._adapter.make_functions(lambda: self._session)
        ]

    async def process(
        self, context: af.ChatContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        client, options = context.client, context.options or {}
        self._session = session = self._adapter.open(
            self._name,
            model=options.get("model") or getattr(client, "model", None),
            base_url=client.service_url() if hasattr(client, "service_url") else None,
            api_key=getattr(getattr(client, "client", None), "api_key", None) or None,
        )
        session.load(self._state.get("guard"))

        async def send(fitted: Fitted[Message]) -> Any:
            context.messages = fitted.messages
            await call_next()
            return await _begin_stream(context.result) if context.stream else context.result

        beside: Beside = {
            "tools": self._adapter.define(options.get("tools"), _define),
            "system": options.get("instructions"),
            "reserve": find_output(options),
        }
        report = _report_nothing if context.stream else _report
        made, fitted = await session.acall(send, context.messages, beside, report=report)
        context.result = made
        if context.stream:
            made.with_result_hook(lambda answer: _learn(fitted, answer))
        if fitted.is_new:
            self._state["guard"] = session.dump()


async def _begin_stream(stream: Any) -> Any:
    events = await begin_stream(stream)
    return af.ResponseStream(events, finalizer=lambda _: stream.get_final_response())


def _define(tool: Any) -> Any:
    return tool.to_json_schema_spec() if isinstance(tool, af.FunctionTool) else tool


def _report(answer: Any) -> Any:
    used = getattr(answer, "usage_details", None)
    if not used or not used.get("input_token_count"):
        return None
    cached = used.get("cache_read_input_token_count") or 0
    return report_chat(used["input_token_count"], used.get("output_token_count") or 0, cached)


def _report_nothing(_: Any) -> None:
    """Return nothing: a stream reports its usage at the end."""


async def _learn(fitted: Fitted[Message], answer: Any) -> None:
    said = _report(answer)
    if said is not None:
        await fitted.view.aobserve(said)
