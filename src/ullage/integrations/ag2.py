"""AG2: a plugin whose middleware guards each model call of an agent, and its parts.

The framework's own compaction strategies replace the history of a stream. This plugin keeps the
history whole. It keeps its compactions in the variables of the context.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from copy import copy
from functools import partial
from typing import Any, Final

from ag2 import Plugin, TextInput, events, tool
from ag2.compact import CompactionSummary
from ag2.events import BaseEvent, ModelMessage, ModelRequest, ModelResponse, ToolResult
from ag2.middleware import BaseMiddleware
from ag2.tools.final.function_tool import FunctionToolSchema
from ag2.utils import MODEL_CONFIG_CONTEXT_DEPENDENCY_KEY

from ullage.integrations.adapter import Adapter, Beside, Fitted, GuardedSession, make_async
from ullage.integrations.pieces import Piece, make_form
from ullage.integrations.reports import find_output, report_chat

__all__ = ["StreamGuard", "find_window", "make_counter"]

KEY: Final = "ullage"
"""The context variable that holds the guard's state."""


class _Events:
    """AG2's events. Their pieces are the parts that the model receives; most events have none."""

    def split(self, event: BaseEvent) -> tuple[str, list[Any]]:
        """Return role and pieces."""
        if isinstance(event, ModelRequest):
            return "user", list(event.parts)
        if isinstance(event, ModelResponse):
            said = [event.message] if event.message else []
            return "assistant", [*said, *event.tool_calls.calls] or [ModelMessage("")]
        if isinstance(event, events.ToolResultsEvent):
            return "tool", list(event.results)
        return "user", [event] if isinstance(event, CompactionSummary) else []

    def read(self, item: Any) -> Piece:
        """Return the content of a piece; content that chat does not have is read as its name."""
        if isinstance(item, events.ToolCallEvent):
            return Piece("call", item.arguments, item.id, item.name)
        if isinstance(item, events.ToolResultEvent):
            texts = [self.read(part).text for part in item.result.parts]
            return Piece("result", "\n".join(texts), item.parent_id)
        if isinstance(item, events.DataInput):
            return Piece("text", json.dumps(item.data, default=str))
        if isinstance(item, (TextInput, ModelMessage, CompactionSummary)):
            return Piece("text", str(getattr(item, "content", getattr(item, "summary", ""))))
        if getattr(item, "kind", None) is events.BinaryType.IMAGE:
            return Piece("part", part={"type": "image_url", "image_url": {"url": _find_url(item)}})
        return Piece("part", part={"type": "file", "file": {"filename": repr(item)}})

    def make(self, piece: Piece, source: Any) -> Any:
        """Return a piece."""
        if piece.kind == "text":
            return (
                ModelMessage(piece.text)
                if isinstance(source, ModelMessage)
                else TextInput(piece.text)
            )
        if piece.kind == "call":
            return events.ToolCallEvent(piece.name, id=piece.id, arguments=piece.text)
        result = ToolResult(TextInput(piece.text))
        return events.ToolResultEvent(
            parent_id=piece.id, name=getattr(source, "name", None), result=result
        )

    def build(self, role: str, items: list[Any], source: BaseEvent | None) -> BaseEvent:
        """Return an event."""
        if role == "tool":
            return events.ToolResultsEvent(items)
        if role != "assistant":
            return ModelRequest(items)
        made: Any = ModelResponse() if source is None else copy(source)
        calls = [item for item in items if isinstance(item, events.ToolCallEvent)]
        said = [item for item in items if item not in calls]
        made.message = ModelMessage(said[0].content) if said else None
        made.tool_calls = events.ToolCallsEvent(calls)
        return made


def _find_url(item: Any) -> str:
    url = getattr(item, "url", None)
    return url or f"data:{item.media_type};base64,{b64encode(item.data).decode()}"


FORM = make_form(_Events())


def find_window(model: str, **options: Any) -> int | None:
    """Return a `max_tokens=` for the framework's `CompactTrigger`, or None if unknown."""
    return Adapter(FORM, model, **options).open().window


def make_counter(model: str | None = None) -> Callable[[Sequence[BaseEvent]], int]:
    """Return a function that counts the events of a stream that the model receives."""
    return Adapter(FORM, model).count


_SESSION: ContextVar[GuardedSession[BaseEvent]] = ContextVar("ullage_session")


class StreamGuard(Plugin):
    """Keep each call of an agent's model inside its window; `options` are those of `ullage.Guard`.

    With `recall` the model gets tools that read and search the text that was left out.
    """

    def __init__(self, model: str | None = None, *, recall: bool = True, **options: Any) -> None:
        self.adapter = Adapter(FORM, model, **options)
        made = self.adapter.make_functions(_SESSION.get) if recall else []
        tools = [
            tool(make_async(f), name=spec.name, description=spec.description,
                 schema=dict(spec.parameters))
            for spec, f in made
        ]  # fmt: skip
        super().__init__(tools=tools, middleware=[partial(_Guarding, self.adapter)])


class _Guarding(BaseMiddleware):
    """One turn of an agent."""

    def __init__(self, adapter: Adapter[BaseEvent], event: BaseEvent, context: Any) -> None:
        super().__init__(event, context)
        self._adapter = adapter

    def _open(self, context: Any) -> GuardedSession[BaseEvent]:
        config = context.dependencies.get(MODEL_CONFIG_CONTEXT_DEPENDENCY_KEY)
        session = self._adapter.open(
            str(context.stream.id),
            model=getattr(config, "model", None),
            base_url=getattr(config, "base_url", None),
            api_key=getattr(config, "api_key", None),
        )
        session.load(context.variables.get(KEY))
        _SESSION.set(session)
        return session

    async def on_llm_call(
        self, call_next: Any, events: Sequence[BaseEvent], context: Any
    ) -> ModelResponse:
        """Send what fits, retry once after an overflow, and learn from the reported usage."""
        held = list(events)
        session = self._open(context)

        def send(fitted: Fitted[BaseEvent]) -> Any:
            return call_next(list(_add_silent(held, fitted.messages)), context)

        beside: Beside = {
            "tools": self._adapter.define(_find_tools(call_next), _define),
            "system": "\n".join(context.prompt),
            "reserve": find_output(context.dependencies.get(MODEL_CONFIG_CONTEXT_DEPENDENCY_KEY)),
        }
        answer, fitted = await session.acall(send, held, beside, report=_report)
        if fitted.is_new:
            context.variables[KEY] = session.dump()
        return answer

    async def on_tool_execution(self, call_next: Any, event: Any, context: Any) -> Any:
        """Run a tool in its session; it may be one of the guard's tools."""
        self._open(context)
        return await call_next(event, context)


def _add_silent(held: Sequence[BaseEvent], made: Sequence[BaseEvent]) -> Iterator[BaseEvent]:
    """Yield the sent events, and before each the events that chat lacks but a provider may read."""
    waiting: list[BaseEvent] = []
    ahead: dict[int, list[BaseEvent]] = {}
    for event in held:
        if FORM.write(event):
            ahead[id(event)], waiting = waiting, []
        else:
            waiting.append(event)
    for event in made:
        yield from ahead.get(id(event), ())
        yield event


def _find_tools(call: Any) -> Sequence[Any]:
    """Return the tools of a call; the framework binds them to the client, below all middleware."""
    while isinstance(call, partial):
        if "tools" in call.keywords:
            return call.keywords["tools"]
        call = next((a for a in call.args if isinstance(a, partial)), None)
    return ()


def _define(schema: Any) -> Any:
    if not isinstance(schema, FunctionToolSchema):
        return {"type": schema.type}
    told = schema.function
    held = {"name": told.name, "description": told.description, "parameters": told.parameters}
    return {"type": "function", "function": held}


def _report(answer: ModelResponse) -> Any:
    used = answer.usage
    if not used or not used.prompt_tokens:
        return None
    cached = int(used.cache_read_input_tokens or 0)
    return report_chat(int(used.prompt_tokens), int(used.completion_tokens or 0), cached)
