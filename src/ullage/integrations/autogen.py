"""AutoGen: a model client that guards the calls of another, a model context, and their parts.

A model context alone sees neither tools, usage nor refusals, so the client guards. The context
keeps all messages and the compactions, and saves both with the state of its agent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final
from uuid import uuid4

from autogen_core import FunctionCall, Image, models
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import CreateResult, FunctionExecutionResult, LLMMessage
from autogen_core.tools import FunctionTool

from ullage.integrations.adapter import Adapter, Beside, Fitted, GuardedSession, make_async
from ullage.integrations.pieces import Piece, make_form
from ullage.integrations.reports import find_output, report_chat
from ullage.integrations.streaming import begin_stream

__all__ = ["GuardedClient", "GuardedContext", "find_window", "make_counter"]

ROLES: Final[Mapping[str, str]] = {
    "SystemMessage": "system",
    "UserMessage": "user",
    "AssistantMessage": "assistant",
}


class _Messages:
    """AutoGen's messages, whose pieces are the items of their content."""

    def split(self, message: LLMMessage) -> tuple[str, list[Any]]:
        """Return role and items; reasoning comes last."""
        held: Any = message.content
        thought = getattr(message, "thought", None)
        items = [held] if isinstance(held, str) else list(held)
        return ROLES.get(message.type, "tool"), items + ([_Thought(thought)] if thought else [])

    def read(self, item: Any) -> Piece:
        """Return the content of an item."""
        if isinstance(item, FunctionCall):
            return Piece("call", item.arguments, item.id, item.name)
        if isinstance(item, FunctionExecutionResult):
            return Piece("result", item.content, item.call_id)
        if isinstance(item, Image):
            return Piece("part", part=item.to_openai_format())
        return Piece("thought" if isinstance(item, _Thought) else "text", str(item))

    def make(self, piece: Piece, source: Any) -> Any:
        """Return an item."""
        if piece.kind == "call":
            return FunctionCall(id=piece.id, arguments=piece.text, name=piece.name)
        if piece.kind != "result":
            return piece.text
        made = source or FunctionExecutionResult(content="", name="", call_id="", is_error=True)
        return made.model_copy(update={"content": piece.text, "call_id": piece.id})

    def build(self, role: str, items: list[Any], source: LLMMessage | None) -> LLMMessage:
        """Return a message."""
        held = [item for item in items if not isinstance(item, _Thought)]
        if source is not None:
            update = {"content": held[0] if isinstance(source.content, str) else held}
            thought = {"thought": next((i for i in items if isinstance(i, _Thought)), None)}
            return source.model_copy(update={**update, **(thought if role == "assistant" else {})})
        if role == "tool":
            return models.FunctionExecutionResultMessage(content=held)
        if role == "assistant":
            return models.AssistantMessage(content=held[0], source="ullage")
        if role == "user":
            return models.UserMessage(content=held[0], source="ullage")
        return models.SystemMessage(content=held[0])


class _Thought(str):
    """Reasoning of a model."""

    __slots__ = ()


FORM = make_form(_Messages())

_CONTEXT: ContextVar[GuardedContext | None] = ContextVar("ullage_context", default=None)
_SESSION: ContextVar[GuardedSession[LLMMessage]] = ContextVar("ullage_session")


def find_window(model: str, **options: Any) -> int | None:
    """Return a `token_limit=` for the framework's contexts, or None if the window is unknown."""
    return Adapter(FORM, model, **options).open().window


def make_counter(model: str | None = None) -> Callable[[Sequence[LLMMessage]], int]:
    """Return a function that counts AutoGen messages."""
    return Adapter(FORM, model).count


class GuardedContext(UnboundedChatCompletionContext):
    """A model context that keeps all messages, and the compactions that a `GuardedClient` made."""

    component_provider_override = "ullage.integrations.autogen.GuardedContext"

    def __init__(self, initial_messages: list[LLMMessage] | None = None) -> None:
        super().__init__(initial_messages)
        self.name = uuid4().hex
        self.compacted: dict[str, Any] | None = None

    async def get_messages(self) -> list[LLMMessage]:
        """Return all messages, and mark this context as the one of the next call."""
        _CONTEXT.set(self)
        return list(self._messages)

    async def clear(self) -> None:
        """Remove all messages and compactions."""
        await super().clear()
        self.name, self.compacted = uuid4().hex, None

    async def save_state(self) -> Mapping[str, Any]:
        """Return the messages and the compactions."""
        kept = {"name": self.name, "compacted": self.compacted}
        return {**await super().save_state(), "ullage": kept}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that was saved."""
        await super().load_state(state)
        kept = state.get("ullage") or {"name": uuid4().hex, "compacted": None}
        self.name, self.compacted = kept["name"], kept["compacted"]


class GuardedClient(models.ChatCompletionClient):
    """Keep each call of a model client inside its window; `options` are those of `ullage.Guard`.

    `tools` read and search the text that was left out: give them to the agent with its own tools.
    """

    def __init__(
        self, client: models.ChatCompletionClient, model: str | None = None, **options: Any
    ) -> None:
        self.client = client
        self.adapter = Adapter(FORM, model, **options)
        self._said = said = client.dump_component().config
        self._named = {
            "model": said.get("model"),
            "base_url": said.get("base_url"),
            "api_key": said.get("api_key"),
        }
        self.tools = [
            FunctionTool(make_async(function), spec.description, spec.name)
            for spec, function in self.adapter.make_functions(_SESSION.get)
        ]

    async def create(self, messages: Sequence[LLMMessage], **given: Any) -> CreateResult:
        """Send what fits, retry once after an overflow, and learn from the reported usage."""
        (session, context), beside = self._open(), self._read(given)
        answer, fitted = await session.acall(
            lambda fitted: self.client.create(fitted.messages, **given),
            messages,
            beside,
            report=_report,
        )
        _keep(session, fitted, context)
        return answer

    async def create_stream(
        self, messages: Sequence[LLMMessage], **given: Any
    ) -> AsyncIterator[str | CreateResult]:
        """Do as `create`, streamed."""
        (session, context), beside = self._open(), self._read(given)
        events, fitted = await session.acall(
            lambda fitted: begin_stream(self.client.create_stream(fitted.messages, **given)),
            messages,
            beside,
            report=lambda _: None,
        )
        _keep(session, fitted, context)
        async for event in events:
            said = _report(event) if isinstance(event, CreateResult) else None
            if said is not None:
                await fitted.view.aobserve(said)
            yield event

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Any = ()) -> int:
        """Return the tokens of a request, by ullage's counter."""
        return self.adapter.count(messages, self._named["model"], _define(tools))

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Any = ()) -> int:
        """Return the free tokens of the window; if the window is unknown, ask the client."""
        left = self.client.remaining_tokens(messages, tools=tools)
        window = self.adapter.open(None, **self._named).window
        return left if window is None else window - self.count_tokens(messages, tools=tools)

    async def close(self) -> None:
        """Close the client."""
        await self.client.close()

    def actual_usage(self) -> Any:
        """Return the client's usage of the last call."""
        return self.client.actual_usage()

    def total_usage(self) -> Any:
        """Return the client's usage of all calls."""
        return self.client.total_usage()

    @property
    def capabilities(self) -> Any:
        """Return the client's capabilities."""
        return self.client.capabilities

    @property
    def model_info(self) -> Any:
        """Return the client's model info."""
        return self.client.model_info

    def _read(self, given: Mapping[str, Any]) -> Beside:
        return {
            "tools": self.adapter.define(given.get("tools"), _define_tool),
            "reserve": find_output(given.get("extra_create_args"), self._said),
        }

    def _open(self) -> tuple[GuardedSession[LLMMessage], GuardedContext | None]:
        context = _CONTEXT.get()
        _CONTEXT.set(None)  # the context sets it before each call of an agent
        name = None if context is None else context.name
        session = self.adapter.open(name, **self._named)
        session.load(None if context is None else context.compacted)
        _SESSION.set(session)
        return session, context


def _keep(
    session: GuardedSession[LLMMessage],
    fitted: Fitted[LLMMessage],
    context: GuardedContext | None,
) -> None:
    if fitted.is_new and context is not None:
        context.compacted = session.dump()


def _define_tool(tool: Any) -> Any:
    return {"type": "function", "function": getattr(tool, "schema", tool)}


def _define(tools: Any) -> list[Any]:
    return [_define_tool(tool) for tool in tools]


def _report(answer: CreateResult) -> Any:
    used = answer.usage
    return report_chat(used.prompt_tokens, used.completion_tokens) if used.prompt_tokens else None
