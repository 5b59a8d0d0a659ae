"""The frameworks that `make integrations` runs: where each lives, and what its seam can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Row:
    """One framework: its title, its distribution, the seam, and what cannot be done there.

    `cannot` is one sentence, "" where all holds. `same` is False where the framework's own requests
    differ from the plain guard's so that compactions fall in other turns; `cannot` says why.
    """

    title: str
    distribution: str
    seam: str
    cannot: str = ""
    same: bool = True


LATER: Final = (
    "Its requests are some tokens smaller: the overflow that the server reports comes a turn later "
    "than the plain guard's."
)

ROWS: Final[Mapping[str, Row]] = {
    "ag2": Row("AG2", "ag2", "middleware of a plugin"),
    "agent_framework": Row(
        "Microsoft Agent Framework",
        "agent-framework-core",
        "`ContextProvider`, `ChatMiddleware`",
        "The framework writes the agent's name into messages once a run is over: a provider's "
        "cache ends there, with and without the guard.",
    ),
    "agno": Row(
        "Agno",
        "agno",
        "`Model`, wrapped, and a pre-hook",
        LATER,
        same=False,
    ),
    "autogen": Row(
        "AutoGen",
        "autogen-core",
        "`ChatCompletionClient`, `ChatCompletionContext`",
        "Cached tokens are not reported by the framework.",
    ),
    "dspy": Row("DSPy", "dspy", "`dspy.LM(engine=)`", LATER, same=False),
    "google_adk": Row("Google ADK", "google-adk", "`BasePlugin`: model and error callbacks"),
    "litellm": Row(
        "LiteLLM",
        "litellm",
        "`CustomLogger`",
        "The synchronous `completion` calls no hook: use `acompletion`, a `Router`, or "
        "`ullage.wrap(litellm)`. A `Router` sends nothing again: where LiteLLM adds output unsaid, "
        f"its first refusal reaches you. {LATER}",
        same=False,
    ),
    "openai_agents": Row("OpenAI Agents SDK", "openai-agents", "`Model`, wrapped, and a `Session`"),
    "pydantic_ai": Row("Pydantic AI", "pydantic-ai-slim", "a capability around `WrapperModel`"),
    "crewai": Row(
        "CrewAI",
        "crewai",
        "`BaseLLM`, wrapped",
        "The framework persists nothing between processes: the program keeps `session.dump()`.",
    ),
    "haystack": Row("Haystack", "haystack-ai", "`ChatGenerator`, wrapped"),
    "langchain": Row(
        "LangChain, LangGraph",
        "langchain",
        "`AgentMiddleware.wrap_model_call`",
        "Usage of a streamed answer is learned where the model reports it (`stream_usage=True`).",
    ),
    "llama_index": Row(
        "LlamaIndex",
        "llama-index-core",
        "`BaseMemory`, `FunctionAgent`",
        "A memory alone sees no usage and no refusal; `ReActAgent`, `CodeActAgent` have no more.",
    ),
    "llm": Row("llm", "llm", "a plugin: model and commands"),
    "smolagents": Row(
        "smolagents",
        "smolagents",
        "`Model`, wrapped",
        "Each answer is a call of `final_answer`: turns are longer, and compactions come earlier "
        "than the plain guard's. The framework persists nothing.",
        same=False,
    ),
    "strands": Row(
        "Strands",
        "strands-agents",
        "`ConversationManager`",
        "`structured_output` calls the model without the middleware.",
    ),
}
"""By the name of the adapter's module."""

IN_CI: Final = ("langchain", "pydantic_ai", "openai_agents")
"""Those that every run of CI installs and runs."""
