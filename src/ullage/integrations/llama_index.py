"""LlamaIndex: a function agent that guards its model calls, a memory, and their parts.

The agent sees the whole prompt with the current turn; a memory does not. The compactions are kept
with the memory, so pass the memory to each run: a workflow's Context does not keep it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence, Sized
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms import types
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.llms import LLM, ChatMessage
from llama_index.core.memory.types import BaseChatStoreMemory, BaseMemory
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.tools import FunctionTool

from ullage.integrations.adapter import Adapter, Beside, Fitted, GuardedSession, make_async
from ullage.integrations.pieces import Piece, make_form
from ullage.integrations.reports import find_output, report_chat

__all__ = ["GuardedFunctionAgent", "GuardedMemory", "find_window", "make_counter"]


class _Messages:
    """LlamaIndex's messages. Their pieces are their blocks; a tool message is one result."""

    def split(self, message: ChatMessage) -> tuple[str, list[Any]]:
        """Return role and blocks."""
        return message.role.value, [message] if message.role == "tool" else message.blocks

    def read(self, block: Any) -> Piece:
        """Return the content of a block; content that chat does not have is read as its JSON."""
        if isinstance(block, ChatMessage):
            answers = str(block.additional_kwargs.get("tool_call_id", ""))
            return Piece("result", block.content or "", answers)
        if isinstance(block, types.TextBlock):
            return Piece("text", block.text)
        if isinstance(block, types.ToolCallBlock):
            asked = block.tool_kwargs
            text = asked if isinstance(asked, str) else json.dumps(asked)
            return Piece("call", text, block.tool_call_id or "", block.tool_name)
        if isinstance(block, types.ThinkingBlock):
            return Piece("thought", block.content or "")
        if isinstance(block, types.ImageBlock) and block.url:
            return Piece("part", part={"type": "image_url", "image_url": {"url": str(block.url)}})
        return Piece(
            "part", part={"type": block.block_type, "value": block.model_dump(mode="json")}
        )

    def make(self, piece: Piece, _: Any) -> Any:
        """Return a block, or a tool's message."""
        if piece.kind == "result":
            answers = {"tool_call_id": piece.id}
            return ChatMessage(piece.text, role="tool", additional_kwargs=answers)
        if piece.kind == "call":
            named = {"tool_call_id": piece.id, "tool_name": piece.name}
            return types.ToolCallBlock(tool_kwargs=piece.text, **named)
        return types.TextBlock(text=piece.text)

    def build(self, role: str, blocks: list[Any], source: ChatMessage | None) -> ChatMessage:
        """Return a message."""
        if role == "tool":
            return blocks[0]
        if source is None:
            return ChatMessage(blocks, role=role)
        return source.model_copy(update={"blocks": blocks})


FORM = make_form(_Messages())


def find_window(model: str, **options: Any) -> int | None:
    """Return a `context_window=` for a model, or None if unknown."""
    return Adapter(FORM, model, **options).open().window


def make_counter(model: str | None = None) -> Callable[[str], Sized]:
    """Return a `tokenizer_fn=` for the framework's memories; its result has one item per token."""
    adapter = Adapter(FORM, model)
    return lambda text: range(adapter.count([ChatMessage(text)]))


def open_session(
    adapter: Adapter[ChatMessage], name: str | None, llm: LLM | None
) -> GuardedSession[ChatMessage]:
    """Return the session of a conversation with one of the framework's models."""
    model, url, key = (getattr(llm, field, None) for field in ("model", "api_base", "api_key"))
    return adapter.open(name, model=model, base_url=url, api_key=key)


class GuardedMemory(BaseChatStoreMemory):
    """A memory that keeps all messages and their compactions.

    It returns all messages to a `GuardedFunctionAgent`. If `llm` or `guard` (options of `Guard`) is
    given, it returns the messages that fit, for a chat engine.
    """

    guard: dict[str, Any] = Field(default_factory=dict, exclude=True)
    llm: LLM | None = Field(default=None, exclude=True)
    name: str = Field(default_factory=lambda: uuid4().hex)
    state: dict[str, Any] | None = None
    _adapter: Adapter[ChatMessage] | None = PrivateAttr(default=None)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which the framework stores it."""
        return "UllageMemory"

    @classmethod
    def from_defaults(cls, **fields: Any) -> GuardedMemory:
        """Return a memory."""
        return cls(**fields)

    def to_dict(self, **_: Any) -> dict[str, Any]:
        """Return the data for `from_dict`; messages in the program's own chat store stay there."""
        own = isinstance(self.chat_store, SimpleChatStore)
        held = self.get_all() if own else []
        return {
            "class_name": self.class_name(),
            "chat_store_key": self.chat_store_key,
            "name": self.name,
            "state": self.state,
            "messages": [message.model_dump(mode="json") for message in held],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], **fields: Any) -> GuardedMemory:
        """Return the memory from `to_dict` data; `fields` are those that the data does not hold."""
        kept = {key: data[key] for key in ("chat_store_key", "name", "state")}
        made = cls(**{**kept, **fields})
        if data["messages"]:
            made.set([ChatMessage.model_validate(message) for message in data["messages"]])
        return made

    def get(self, *_: Any, **__: Any) -> list[ChatMessage]:
        """Return the messages that fit. Raises what `Guard.prepare` raises."""
        held = self.get_all()
        if not self.guard and self.llm is None:
            return held
        self._adapter = self._adapter or Adapter(FORM, **self.guard)
        session = open_session(self._adapter, self.name, self.llm)
        session.load(self.state)
        fitted = session.fit(held, {"reserve": _find_output(self.llm)})
        if fitted.is_new:
            self.state = session.dump()
        return fitted.messages

    aget = BaseMemory.aget  # runs `get` in a thread; the direct base class reads only the store


_SESSION: ContextVar[GuardedSession[ChatMessage]] = ContextVar("ullage_session")


class GuardedFunctionAgent(FunctionAgent):
    """A function agent that stays inside its model's window; `guard` are options of `Guard`.

    With `recall` the model gets tools that read and search the text that was left out.
    """

    guard: dict[str, Any] = Field(default_factory=dict)
    recall: bool = True
    _adapter: Adapter[ChatMessage] = PrivateAttr()
    _tools: list[Any] = PrivateAttr(default_factory=list)

    def __init__(self, *, recall: bool = True, guard: Any = None, **fields: Any) -> None:
        super().__init__(**fields)
        self._adapter = Adapter(FORM, **(guard or {}))
        made = self._adapter.make_functions(_SESSION.get) if recall else []
        self._tools = [
            FunctionTool.from_defaults(f, async_fn=make_async(f), description=spec.description)
            for spec, f in made
        ]

    async def get_tools(self, input_str: str | None = None) -> Sequence[Any]:
        """Return the agent's tools and the tools that read the text that was left out."""
        return [*await super().get_tools(input_str), *self._tools]

    def _open(self, memory: Any) -> GuardedSession[ChatMessage]:
        session = open_session(self._adapter, getattr(memory, "name", None), self.llm)
        session.load(getattr(memory, "state", None))
        _SESSION.set(session)
        return session

    async def take_step(self, ctx: Any, llm_input: Any, tools: Any, memory: Any) -> Any:
        """Take a step of the agent, and keep its compactions with the memory."""
        session = self._open(memory)
        made = await super().take_step(ctx, llm_input, tools, memory)
        if isinstance(memory, GuardedMemory):
            memory.state = session.dump()
        return made

    async def _call_tool(self, ctx: Any, tool: Any, tool_input: Any) -> Any:
        self._open(await ctx.store.get("memory"))
        return await super()._call_tool(ctx, tool, tool_input)

    async def _get_response(self, current_llm_input: Any, tools: Any) -> Any:
        send = super()._get_response
        return await self._guard(lambda f: send(f.messages, tools), current_llm_input, tools)

    async def _get_streaming_response(self, ctx: Any, current_llm_input: Any, tools: Any) -> Any:
        send = super()._get_streaming_response
        return await self._guard(lambda f: send(ctx, f.messages, tools), current_llm_input, tools)

    async def _guard(
        self, send: Callable[[Fitted[ChatMessage]], Any], messages: Any, tools: Any
    ) -> Any:
        defined = self._adapter.define(tools, lambda tool: tool.metadata.to_openai_tool())
        beside: Beside = {"tools": defined, "reserve": _find_output(self.llm)}
        answer, _ = await _SESSION.get().acall(send, messages, beside, report=_report)
        return answer


def _find_output(llm: Any) -> int | None:
    return find_output(getattr(llm, "additional_kwargs", None), llm)


def _report(answer: Any) -> Any:
    used = getattr(answer.raw, "usage", None)
    prompt = getattr(used, "prompt_tokens", None)
    if used is None or prompt is None:
        return None
    cached = getattr(getattr(used, "prompt_tokens_details", None), "cached_tokens", None)
    return report_chat(prompt, used.completion_tokens, cached or 0)
