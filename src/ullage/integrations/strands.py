"""Strands Agents: a conversation manager that guards each call of the model, and its parts.

It replaces the framework's own manager, which cuts the agent's messages. This one keeps them whole;
a middleware sends what fits. It keeps its compactions in the manager's state. Strands uses the
messages of Bedrock's Converse, and they are read as such.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from strands.agent.conversation_manager import ConversationManager
from strands.hooks import AgentInitializedEvent, HookRegistry
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.tools.tools import PythonAgentTool
from strands.types.events import ModelStopReason

from ullage.core.dialects import names
from ullage.integrations.adapter import Adapter, Beside, Fitted, GuardedSession, MessageForm
from ullage.integrations.reports import find_output, report_converse
from ullage.integrations.streaming import begin_stream

__all__ = ["ConversationGuard", "find_window", "make_counter"]

FORM: MessageForm[Any] = MessageForm(
    lambda message: [message], lambda raws, _: raws[0], dialect=names.BEDROCK_CONVERSE
)
"""The identity: a Strands message already is a message of the dialect."""


def find_window(model: str, **options: Any) -> int | None:
    """Return a `context_window_limit=` for a model's configuration, or None if unknown."""
    return Adapter(FORM, model, **options).open().window


def make_counter(model: str | None = None) -> Callable[[Sequence[Any]], int]:
    """Return a function that counts Strands messages."""
    return Adapter(FORM, model).count


class ConversationGuard(ConversationManager):
    """Keep each call of an agent's model inside its window; `options` are those of `ullage.Guard`.

    One guard serves one agent. With `recall` the model gets tools that read and search the text
    that was left out.
    """

    def __init__(self, model: str | None = None, *, recall: bool = True, **options: Any) -> None:
        super().__init__()
        self.adapter = Adapter(FORM, model, **options)
        self._name = uuid4().hex
        self._state: dict[str, Any] | None = None
        self._session: GuardedSession[Any] = self.adapter.open(self._name)
        self._recall = recall

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register for the event that names the agent."""
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AgentInitializedEvent, self._begin)

    def apply_management(self, agent: Any, **kwargs: Any) -> None:
        """Leave the agent's messages whole."""

    def reduce_context(self, agent: Any, e: Exception | None = None, **_: Any) -> None:
        """Raise a refusal again: the middleware has already compacted and retried."""
        if e is not None:
            raise e

    def get_state(self) -> dict[str, Any]:
        """Return the state that the framework's sessions keep."""
        return {**super().get_state(), "name": self._name, "state": self._state}

    def restore_from_session(self, state: dict[str, Any]) -> None:
        """Restore the state that a session kept."""
        super().restore_from_session(state)
        self._name, self._state = state["name"], state["state"]

    def _begin(self, event: AgentInitializedEvent[Any]) -> None:
        event.agent.add_middleware(InvokeModelStage, self._invoke)
        made = self.adapter.make_functions(lambda: self._session) if self._recall else []
        for spec, function in made:
            schema = {"json": dict(spec.parameters)}
            told: Any = {
                "name": spec.name, "description": spec.description, "inputSchema": schema
            }  # fmt: skip
            event.agent.tool_registry.register_tool(
                PythonAgentTool(spec.name, told, _make_tool(function))
            )

    async def _invoke(
        self, context: InvokeModelContext, next_fn: Callable[[InvokeModelContext], Any]
    ) -> AsyncIterator[Any]:
        """Send what fits, retry once after an overflow, and learn from the reported usage."""
        model: Any = context.model
        held, client = model.get_config(), getattr(model, "client_args", None) or {}
        self._session = session = self.adapter.open(
            self._name,
            model=held.get("model_id"),
            base_url=client.get("base_url"),
            api_key=client.get("api_key"),
        )
        session.load(self._state)

        def send(fitted: Fitted[Any]) -> Awaitable[AsyncIterator[Any]]:
            return begin_stream(next_fn(context.replace(messages=fitted.messages)))

        beside: Beside = {
            "tools": [{"toolSpec": spec} for spec in context.tool_specs],
            "system": _read_system(context.system_prompt),
            "reserve": find_output(held.get("params"), held),
        }
        events, fitted = await session.acall(send, context.messages, beside, report=lambda _: None)
        if fitted.is_new:
            self._state = session.dump()
        async for event in events:
            said = report_converse(event.usage) if isinstance(event, ModelStopReason) else None
            if said is not None:
                await fitted.view.aobserve(said)
            yield event


def _read_system(prompt: Any) -> str | None:
    if prompt is None or isinstance(prompt, str):
        return prompt
    return "\n".join(block["text"] for block in prompt if "text" in block)


def _make_tool(function: Callable[..., str]) -> Callable[..., Any]:
    def answer(tool: Mapping[str, Any], **_: Any) -> Any:
        text = function(**tool["input"])
        return {
            "toolUseId": tool["toolUseId"], "status": "success", "content": [{"text": text}]
        }  # fmt: skip

    return answer
