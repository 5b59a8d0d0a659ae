"""Google's Agent Development Kit: a plugin that guards each model call of an app, and its parts.

The guard keeps its state in the session's state, saved with the event of the answer. It reads
contents in the form of the Gemini API, as objects of Google's SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.models import LlmRequest, LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools import BaseTool
from google.genai import types

from ullage.core.dialects import names
from ullage.core.session.tools import Spec
from ullage.integrations.adapter import (
    TOOLS,
    Adapter,
    Beside,
    Fitted,
    GuardedSession,
    MessageForm,
    SentRequest,
    Waiting,
)
from ullage.integrations.reports import find_output, report_gemini

__all__ = ["AdkGuard", "find_threshold", "make_counter"]

KEY = "ullage"
"""The key of the guard's state in a session's state."""


def read_content(raws: Sequence[Any], source: types.Content | None) -> types.Content:
    """Return an edited content as an object of Google's SDK."""
    raw = raws[0]
    return raw if isinstance(raw, types.Content) else types.Content.model_validate(raw)


FORM: MessageForm[types.Content] = MessageForm(
    lambda content: [content], read_content, names.GEMINI
)


def find_threshold(model: str, share: float = 0.8, **options: Any) -> int | None:
    """Return a `token_threshold=` for `EventsCompactionConfig`: a share of the model's window."""
    window = Adapter(FORM, model, **options).open().window
    return None if window is None else int(window * share)


def make_counter(model: str | None = None) -> Callable[[Sequence[types.Content]], int]:
    """Return a function that counts contents, for callbacks and custom filters."""
    return Adapter(FORM, model).count


class AdkGuard(BasePlugin):
    """Keep each model call of an app inside its window; `options` are those of `ullage.Guard`.

    With `recall` the model gets tools that read and search the text that was left out.
    """

    def __init__(self, model: str | None = None, *, recall: bool = True, **options: Any) -> None:
        super().__init__("ullage")
        self.adapter = Adapter(FORM, model, **options)
        self._tools = [AdkRecallTool(self, spec) for spec in TOOLS] if recall else []
        self._sent: Waiting[types.Content] = Waiting()

    def open(self, context: Any) -> GuardedSession[types.Content]:
        """Return the session of an agent's model in a session of ADK."""
        model = context._invocation_context.agent.canonical_model
        url = getattr(model, "base_url", None)
        return self.adapter.open(context.session.id, model=model.model, base_url=url)

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> None:
        """Reduce the request to what fits."""
        session, given = self.open(callback_context), llm_request.contents
        session.load(callback_context.state.get(KEY))
        llm_request.append_tools([t for t in self._tools if t.name not in llm_request.tools_dict])
        fitted = await session.afit(given, _find_beside(llm_request.config))
        self._keep_state(callback_context, session, fitted)
        self._sent.keep(_name(callback_context), SentRequest(session, fitted))
        llm_request.contents = fitted.messages

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> None:
        """Learn from the usage of an answer; for a stream, from its last piece."""
        said = _report(llm_response)
        sent = self._sent.pop(_name(callback_context), None) if said else None
        if sent is not None:
            await sent.fitted.view.aobserve(said)

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """Retry once with a smaller request if the first one was too large."""
        sent = self._sent.pop(_name(callback_context), None)
        if sent is None:
            return None
        model = callback_context._invocation_context.agent.canonical_model

        async def send(fitted: Fitted[types.Content]) -> LlmResponse:
            asked = llm_request.model_copy(update={"contents": fitted.messages})
            return [answer async for answer in model.generate_content_async(asked)][-1]

        made = await sent.session.aretry(send, sent.fitted, error, report=_report)
        if made is None:
            return None
        self._keep_state(callback_context, sent.session, made[1])
        return made[0]

    def _keep_state(
        self,
        context: CallbackContext,
        session: GuardedSession[types.Content],
        fitted: Fitted[types.Content],
    ) -> None:
        state = session.dump() if fitted.is_new else None
        if state is not None:
            context.state[KEY] = state


class AdkRecallTool(BaseTool):
    """A tool that reads or searches the text that was left out of the calling session."""

    def __init__(self, guard: AdkGuard, spec: Spec) -> None:
        super().__init__(name=spec.name, description=spec.description)
        self._guard = guard
        self._declared = types.FunctionDeclaration(
            name=spec.name,
            description=spec.description,
            parameters_json_schema=dict(spec.parameters),
        )

    def _get_declaration(self) -> types.FunctionDeclaration:
        return self._declared

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> str:
        """Return the requested text."""
        return self._guard.open(tool_context).answer(self.name, args)


def _name(context: CallbackContext) -> tuple[str, str]:
    return context.invocation_id, context.agent_name


def _find_beside(config: types.GenerateContentConfig) -> Beside:
    system: Any = config.system_instruction
    return {
        "system": system,
        "tools": [
            tool.model_dump(exclude_none=True, by_alias=True, mode="json")
            for tool in config.tools or ()
            if isinstance(tool, types.Tool)
        ],
        "reserve": find_output(config),
    }


def _report(answer: LlmResponse) -> Any:
    used = answer.usage_metadata
    if answer.partial or not used or not used.prompt_token_count:
        return None
    answered = (used.candidates_token_count or 0) + (used.thoughts_token_count or 0)
    cached = used.cached_content_token_count or 0
    return report_gemini(used.prompt_token_count, answered, cached)
