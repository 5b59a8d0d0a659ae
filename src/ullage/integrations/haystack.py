"""Haystack: a chat generator that guards the calls of another, in agents and pipelines; its parts.

The framework's own hook rewrites an agent's messages. This generator keeps them whole and sends
what fits. It keeps its compactions in the agent's State if the schema has a key for them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

from haystack import component, default_from_dict, default_to_dict
from haystack.components.agents.state import State
from haystack.core.serialization import component_to_dict
from haystack.dataclasses import ChatMessage, ChatRole
from haystack.dataclasses import chat_message as parts
from haystack.tools import Tool, flatten_tools_or_toolsets
from haystack.utils.deserialization import deserialize_component_inplace

from ullage.integrations.adapter import Adapter, Beside, Fitted, GuardedSession
from ullage.integrations.pieces import Piece, make_form
from ullage.integrations.reports import find_output, report_chat

__all__ = ["KEY", "GuardedGenerator", "MessageCounter", "StateKeeper", "find_window"]

KEY: Final = "ullage"
"""The key of an agent's `state_schema`, of type dict, that holds the guard's state."""

_STATE: ContextVar[State | None] = ContextVar("ullage_state", default=None)
_SESSION: ContextVar[GuardedSession[ChatMessage]] = ContextVar("ullage_session")


class _Messages:
    """Haystack's messages, whose pieces are the parts of their content."""

    def split(self, message: ChatMessage) -> tuple[str, Sequence[Any]]:
        """Return role and parts."""
        return message.role.value, message._content

    def read(self, part: Any) -> Piece:
        """Return the content of a part; content that chat does not have is read as its JSON."""
        if isinstance(part, parts.TextContent):
            return Piece("text", part.text)
        if isinstance(part, parts.ToolCall):
            return Piece("call", json.dumps(part.arguments), part.id or "", part.tool_name)
        if isinstance(part, parts.ToolCallResult):
            held = part.result
            texts = [held] if isinstance(held, str) else [getattr(p, "text", "") for p in held]
            return Piece("result", "\n".join(texts), part.origin.id or "")
        if isinstance(part, parts.ReasoningContent):
            return Piece("thought", part.reasoning_text)
        if isinstance(part, parts.ImageContent):
            url = f"data:{part.mime_type};base64,{part.base64_image}"
            return Piece("part", part={"type": "image_url", "image_url": {"url": url}})
        return Piece("part", part={"type": "file", "file": part.to_dict()})

    def make(self, piece: Piece, source: Any) -> Any:
        """Return a part."""
        if piece.kind == "call":
            return replace(source, arguments=json.loads(piece.text), id=piece.id)
        if piece.kind == "result":
            asked = parts.ToolCall("", {}) if source is None else source.origin
            error = source is None or source.error
            return parts.ToolCallResult(piece.text, replace(asked, id=piece.id), error)
        return parts.TextContent(piece.text)

    def build(self, role: str, content: list[Any], source: ChatMessage | None) -> ChatMessage:
        """Return a message."""
        made = source or ChatMessage(ChatRole.from_str(role), [])
        return replace(made, _content=content)


FORM = make_form(_Messages())


def find_window(model: str, **options: Any) -> int | None:
    """Return a `context_window=` for the framework's `CompactionHook`, or None if unknown."""
    return Adapter(FORM, model, **options).open().window


class MessageCounter:
    """A `token_counter=` for the framework's `CompactionHook`."""

    def __init__(self, model: str | None = None) -> None:
        self.model = model
        self._adapter = Adapter(FORM, model)

    def count(self, messages: list[ChatMessage], tools: Any = None) -> int:
        """Return the tokens of messages and tools."""
        defined = self._adapter.define(flatten_tools_or_toolsets(tools), define_tool)
        return self._adapter.count(messages, tools=defined)

    def to_dict(self) -> dict[str, Any]:
        """Return what the framework stores."""
        return default_to_dict(self, model=self.model)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MessageCounter:
        """Return the counter that was stored."""
        return default_from_dict(cls, data)


class StateKeeper:
    """A `before_llm` hook that lets a `GuardedGenerator` keep its compactions in the State."""

    allowed_hook_points = ("before_llm",)

    def run(self, state: State) -> None:
        """Mark the State as the one of the next call."""
        _STATE.set(state)

    async def run_async(self, state: State) -> None:
        """Do as `run`, in the calling task instead of a thread."""
        _STATE.set(state)

    def to_dict(self) -> dict[str, Any]:
        """Return what the framework stores."""
        return default_to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StateKeeper:
        """Return the hook that was stored."""
        return default_from_dict(cls, data)


@component
class GuardedGenerator:
    """Keep each call of a chat generator inside its model's window.

    `options` are those of `ullage.Guard`. `tools` read and search the text that was left out: give
    them to the agent with its own tools.
    """

    def __init__(
        self, chat_generator: Any, model: str | None = None, options: dict[str, Any] | None = None
    ) -> None:
        self.chat_generator, self.model, self.options = chat_generator, model, options
        self.adapter = Adapter(FORM, model, **(options or {}))
        self.tools = [
            Tool(spec.name, spec.description, dict(spec.parameters), function)
            for spec, function in self.adapter.make_functions(_SESSION.get)
        ]

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage],
        streaming_callback: Any = None,
        generation_kwargs: dict[str, Any] | None = None,
        tools: Any = None,
    ) -> dict[str, Any]:
        """Send what fits, retry once after an overflow, and learn from the reported usage."""
        given, beside = self._begin(streaming_callback, generation_kwargs, tools)
        session, state = self._open()
        made, fitted = session.call(
            lambda fitted: self.chat_generator.run(messages=fitted.messages, **given),
            messages,
            beside,
            report=_report,
        )
        _keep(session, fitted, state)
        return made

    @component.output_types(replies=list[ChatMessage])
    async def run_async(
        self,
        messages: list[ChatMessage],
        streaming_callback: Any = None,
        generation_kwargs: dict[str, Any] | None = None,
        tools: Any = None,
    ) -> dict[str, Any]:
        """Do as `run`, awaited."""
        given, beside = self._begin(streaming_callback, generation_kwargs, tools)
        session, state = self._open()
        made, fitted = await session.acall(
            lambda fitted: self.chat_generator.run_async(messages=fitted.messages, **given),
            messages,
            beside,
            report=_report,
        )
        _keep(session, fitted, state)
        return made

    def warm_up(self) -> None:
        """Warm the generator up."""
        if hasattr(self.chat_generator, "warm_up"):
            self.chat_generator.warm_up()

    def to_dict(self) -> dict[str, Any]:
        """Return what the framework stores."""
        inner = component_to_dict(self.chat_generator, "chat_generator")
        return default_to_dict(self, chat_generator=inner, model=self.model, options=self.options)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> GuardedGenerator:
        """Return the generator that was stored."""
        deserialize_component_inplace(data["init_parameters"], key="chat_generator")
        return default_from_dict(cls, data)

    def _begin(self, callback: Any, kwargs: Any, tools: Any) -> tuple[dict[str, Any], Beside]:
        given = {
            "streaming_callback": callback, "generation_kwargs": kwargs, "tools": tools
        }  # fmt: skip
        defined = self.adapter.define(flatten_tools_or_toolsets(tools), define_tool)
        inner = self.chat_generator
        asked = find_output(kwargs, getattr(inner, "generation_kwargs", None), inner)
        told: Beside = {"tools": defined, "reserve": asked}
        return {k: v for k, v in given.items() if v is not None}, told

    def _open(self) -> tuple[GuardedSession[ChatMessage], State | None]:
        inner, state = self.chat_generator, _STATE.get()
        _STATE.set(None)  # the hook sets it before each call of an agent
        kept = state.data.get(KEY) or {} if state is not None and KEY in state.schema else None
        key: Any = getattr(inner, "api_key", None)
        session = self.adapter.open(
            None if kept is None else kept.get("name") or uuid4().hex,
            model=getattr(inner, "model", None),
            base_url=getattr(inner, "api_base_url", None),
            api_key=key.resolve_value() if hasattr(key, "resolve_value") else None,
        )
        session.load((kept or {}).get("state"))
        _SESSION.set(session)
        return session, None if kept is None else state


def define_tool(tool: Tool) -> dict[str, Any]:
    """Return a tool as Chat Completions defines it."""
    return {"type": "function", "function": tool.tool_spec}


def _keep(
    session: GuardedSession[ChatMessage], fitted: Fitted[ChatMessage], state: State | None
) -> None:
    if state is not None and (fitted.is_new or not state.data.get(KEY)):
        state.set(KEY, {"name": session.name, "state": session.dump()})


def _report(answer: dict[str, Any]) -> Any:
    used = answer["replies"][0].meta.get("usage") if answer["replies"] else None
    if not used or "prompt_tokens" not in used:
        return None
    cached = (used.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return report_chat(used["prompt_tokens"], used.get("completion_tokens", 0), cached)
