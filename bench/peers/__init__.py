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
    "tiktoken": ("base", "bench.peers.plain:Tiktoken"),
    "tiktoken with sums kept": ("base", "bench.peers.plain:Remembered"),
    "LangChain exact": ("langchain", "bench.peers.langchain:Exact"),
    "LangChain approximate": ("langchain", "bench.peers.langchain:Approximate"),
    "LiteLLM": ("litellm", "bench.peers.litellm:LiteLLM"),
}
"""By the name in the tables: the virtual environment, and the class."""

SAME_COUNTS = "tiktoken with sums kept"
"""Counts as tiktoken does; only quicker."""

TRIMMING = ("ullage", "LangChain exact", "LangChain approximate", "LiteLLM")

LIBRARIES = {
    "ullage": ("ullage", "toktok-rs"),
    "base": ("tiktoken", "bpe-openai"),
    "langchain": ("langchain-core", "langchain-openai", "tiktoken"),
    "litellm": ("litellm", "tiktoken"),
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
    "base": {"`tiktoken` and o200k_base": "import tiktoken; tiktoken.get_encoding('o200k_base')"},
    "langchain": {
        "`langchain_core` with `trim_messages`": (
            "from langchain_core.messages import trim_messages"
        ),
        "... and `ChatOpenAI`, which counts": (
            "from langchain_core.messages import trim_messages;"
            "from langchain_openai import ChatOpenAI"
        ),
    },
    "litellm": {"`import litellm`": "import litellm"},
}


def load(name: str) -> Peer:
    """Import and set up a peer; loads its vocabulary by counting a little."""
    module, cls = HOMES[name][1].split(":")
    make: Callable[[], Peer] = getattr(import_module(module), cls)
    warm = make()
    warm.count(warm.read([{"role": "user", "content": "Warm up, größe 中文."}]))
    return make()
