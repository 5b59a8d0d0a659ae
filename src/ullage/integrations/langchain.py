"""LangChain and LangGraph: a middleware that guards each model call of an agent, and its two parts.

State is kept in the graph's own, so that a checkpointer carries it to the next process. LangChain's
messages are read as Chat Completions messages, by its own conversion.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
)
from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages
from langchain_core.messages.utils import convert_to_openai_messages
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config
from langgraph.types import Command

from ullage.integrations.adapter import Adapter, Beside, Fitted, GuardedSession, MessageForm
from ullage.integrations.reports import report_chat

__all__ = ["ContextGuard", "make_counter", "make_profile"]


def write_message(message: BaseMessage) -> list[Any]:
    """Return a message as Chat Completions has it."""
    made = convert_to_openai_messages(message)
    return made if isinstance(made, list) else [made]


def read_messages(raws: Sequence[Any], source: BaseMessage | None) -> BaseMessage:
    """Return edited messages as one of LangChain's; what nobody edited stays as it was."""
    made = convert_to_messages(raws)[0]
    if source is None:
        return made
    calls = {"tool_calls": made.tool_calls} if isinstance(made, AIMessage) else {}
    return source.model_copy(update={"content": made.content, **calls})


FORM = MessageForm(write_message, read_messages)


def make_profile(model: str, **options: Any) -> dict[str, int]:
    """Return a `profile=` for a chat model: its window, empty where nobody knows it."""
    window = Adapter(FORM, model, **options).open().window
    return {} if window is None else {"max_input_tokens": window}


def make_counter(model: str | None = None) -> Callable[[Sequence[BaseMessage]], int]:
    """Return a `token_counter=` for `trim_messages` and LangChain's middleware."""
    return Adapter(FORM, model).count


class GuardState(AgentState[Any]):
    """What a graph keeps for the guard."""

    ullage: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


class ContextGuard(AgentMiddleware[Any, Any, Any]):
    """Keep each model call of an agent inside its window; `options` are those of `ullage.Guard`.

    With `recall` the model gets tools that read and search what was left out.
    """

    state_schema = GuardState

    def __init__(self, model: str | None = None, *, recall: bool = True, **options: Any) -> None:
        super().__init__()
        self.adapter = Adapter(FORM, model, **options)
        made = self.adapter.make_functions(self._open) if recall else []
        self.tools = [
            StructuredTool.from_function(f, args_schema=dict(spec.parameters)) for spec, f in made
        ]

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ExtendedModelResponse[Any]:
        """Send what fits, once more after an overflow, and keep what was compacted in the state."""
        session, beside = self._begin(request)
        made = session.call(
            lambda fitted: handler(request.override(messages=fitted.messages)),
            request.messages,
            beside,
            report=_report,
        )
        return _end(session, *made)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ExtendedModelResponse[Any]:
        """Do as `wrap_model_call`, awaited."""
        session, beside = self._begin(request)
        made = await session.acall(
            lambda fitted: handler(request.override(messages=fitted.messages)),
            request.messages,
            beside,
            report=_report,
        )
        return _end(session, *made)

    def _open(self, model: Any = None) -> GuardedSession[BaseMessage]:
        thread = (get_config().get("configurable") or {}).get("thread_id")
        name = getattr(model, "model_name", None) or getattr(model, "model", None)
        url = getattr(model, "openai_api_base", None) or getattr(model, "base_url", None)
        return self.adapter.open(None if thread is None else str(thread), model=name, base_url=url)

    def _begin(self, request: ModelRequest[Any]) -> tuple[GuardedSession[BaseMessage], Beside]:
        session = self._open(request.model)
        session.load(request.state.get("ullage"))
        system = request.system_message
        return session, {
            "tools": self.adapter.define(request.tools, convert_to_openai_tool),
            "system": None if system is None else system.text,
        }


def _report(answer: ModelResponse[Any]) -> Any:
    usage = getattr(answer.result[0], "usage_metadata", None)
    return usage and report_chat(
        usage["input_tokens"],
        usage["output_tokens"],
        usage.get("input_token_details", {}).get("cache_read", 0),
    )


def _end(
    session: GuardedSession[BaseMessage], answer: ModelResponse[Any], fitted: Fitted[BaseMessage]
) -> ExtendedModelResponse[Any]:
    state = session.dump() if fitted.is_new else None
    return ExtendedModelResponse(
        answer, None if state is None else Command(update={"ullage": state})
    )
