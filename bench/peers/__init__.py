"""The libraries that are measured, one module each, behind one protocol.

A module is imported only in the virtual environment that holds its library.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

Message = dict[str, Any]
History = list[Any]


class Peer(Protocol):
    """A library, or one way of using it.

    `read` turns OpenAI messages into the library's own, `plain` turns them back.
    """

    def read(self, messages: list[Message]) -> History: ...

    def plain(self, history: History) -> list[Message]: ...

    def count(self, history: History) -> int: ...

    def trim(self, history: History, budget: int) -> History:
        """Return what fits into `budget` tokens; raises what the library raises."""
        ...

    def manager(self, window: int, output: int) -> Callable[[History], History]:
        """Return what makes a request out of the whole history, turn by turn."""
        ...


HOMES = {
    "ullage": ("ullage", "bench.peers.ours:Ullage"),
    "ullage.Tally": ("ullage", "bench.peers.ours:Tallied"),
    "tiktoken": ("base", "bench.peers.plain:Tiktoken"),
    "tiktoken with sums kept": ("base", "bench.peers.plain:Remembered"),
    "LangChain exact": ("langchain", "bench.peers.langchain:Exact"),
    "LangChain approximate": ("langchain", "bench.peers.langchain:Approximate"),
    "LiteLLM": ("litellm", "bench.peers.litellm:LiteLLM"),
    "LlamaIndex": ("llamaindex", "bench.peers.llamaindex:LlamaIndex"),
    "Agent Framework": ("agentframework", "bench.peers.agentframework:AgentFramework"),
}
"""By the name in the tables: the virtual environment, and the class."""

TEXTS = {
    "ullage.count_text": ("ullage", "bench.peers.texts:Ullage"),
    "ullage, counter alone": ("ullage", "bench.peers.texts:UllageCounter"),
    "toktok-rs": ("counters", "bench.peers.texts:Toktok"),
    "fastokens": ("counters", "bench.peers.texts:Fastokens"),
    "bpe-openai": ("counters", "bench.peers.texts:BpeOpenai"),
    "tiktoken": ("counters", "bench.peers.texts:Tiktoken"),
    "puretiktoken": ("counters", "bench.peers.texts:Puretiktoken"),
}
"""The counters of plain text, likewise."""

ALONE = "ullage, trim alone"
AFTER = {
    ALONE: ("ullage", "bench.peers.ours:TrimAlone"),
    "ullage, trim and block": ("ullage", "bench.peers.ours:TrimAndBlock"),
    "ullage, default ladder": ("ullage", "bench.peers.ours:Ullage"),
}
"""Ways of using ullage that are trimmed with beside the peers: the first does what they do."""

CHAINED = {
    **AFTER,
    "ullage, summary by rule": ("ullage", "bench.peers.ours:ByRule"),
    "ullage, pins given": ("ullage", "bench.peers.ours:Pinning"),
}
"""Ways of using ullage whose compactions are chained."""

SIMPLE = {
    "newest user messages": ("base", "bench.peers.plain:NewestUsers"),
    "newest messages": ("base", "bench.peers.plain:Newest"),
    "best sentences of users": ("base", "bench.peers.plain:BestSentences"),
}
"""Rules of one line to sixty, which nobody needs a library for."""

BY_MODEL = {
    "ullage, summary by a model": ("ullage", "bench.peers.ours:ByModel"),
    "a model's summary, newest messages": ("base", "bench.peers.plain:ModelSummary"),
}
"""Ways that ask a model for summaries: ours, and that of an application without a library."""

WAYS = {**CHAINED, **SIMPLE, **BY_MODEL}

SAME_COUNTS = ("tiktoken with sums kept", "ullage.Tally")
"""Count as another peer does; only quicker."""

TRIMMING = ("ullage", "LangChain exact", "LangChain approximate", "LiteLLM")

LIBRARIES = {
    "ullage": ("ullage", "toktok-rs"),
    "base": ("tiktoken", "bpe-openai"),
    "langchain": ("langchain-core", "langchain-openai", "tiktoken"),
    "litellm": ("litellm", "tiktoken"),
    "llamaindex": ("llama-index-core", "tiktoken"),
    "agentframework": ("agent-framework-core", "tiktoken"),
    "counters": ("toktok-rs", "fastokens", "bpe-openai", "tiktoken", "puretiktoken"),
}
"""By virtual environment: the distributions whose versions the report names."""

IMPORTS = {
    "ullage": {
        "`import ullage`": "import ullage",
        "`import ullage` and a first `Guard`": (
            "import ullage; ullage.Guard('gpt-4o', window=100_000)"
        ),
        "... and its first `prepare`, with the vocabulary": (
            "import ullage; ullage.Guard('gpt-4o', window=100_000)"
            ".prepare([{'role': 'user', 'content': 'Hello.'}])"
        ),
    },
    "base": {
        "`import tiktoken`": "import tiktoken",
        "... and o200k_base": "import tiktoken; tiktoken.get_encoding('o200k_base')",
    },
    "langchain": {
        "`langchain_core.messages`": "import langchain_core.messages",
        "... with `trim_messages`": "from langchain_core.messages import trim_messages",
        "... and `ChatOpenAI`, which counts": (
            "from langchain_core.messages import trim_messages;"
            "from langchain_openai import ChatOpenAI"
        ),
    },
    "litellm": {"`import litellm`": "import litellm"},
    "llamaindex": {"`import llama_index.core`": "import llama_index.core"},
    "agentframework": {
        "`agent_framework`, with what counts": (
            "from agent_framework import annotate_message_groups"
        ),
    },
}


def home(name: str) -> str:
    """Return the virtual environment of a peer or of a counter of text."""
    return (HOMES.get(name) or WAYS.get(name) or TEXTS[name])[0]


def load(name: str) -> Peer:
    """Import and set up a peer; loads its vocabulary by counting a little.

    Who trims also does that once, for libraries that load parts of themselves when first used.
    """
    module, cls = (HOMES.get(name) or WAYS[name])[1].split(":")
    make: Callable[[], Peer] = getattr(import_module(module), cls)
    warm = make()
    asked = {"role": "user", "content": "Warm up, größe 中文."}
    warm.count(warm.read([asked]))
    if name in TRIMMING or name in WAYS:
        answered = {"role": "assistant", "content": "I am warm. " * 40}
        warm.trim(warm.read([asked, answered] * 6 + [asked]), 400)
    return make()
