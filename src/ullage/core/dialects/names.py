"""The names of the dialects: each is that of a folder next to this file."""

from __future__ import annotations

from typing import Final

OPENAI_CHAT: Final = "openai_chat"
OPENAI_RESPONSES: Final = "openai_responses"
ANTHROPIC: Final = "anthropic"
OLLAMA_CHAT: Final = "ollama_chat"
GEMINI: Final = "gemini"
BEDROCK_CONVERSE: Final = "bedrock_converse"

DIALECTS: Final = (
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    ANTHROPIC,
    OLLAMA_CHAT,
    GEMINI,
    BEDROCK_CONVERSE,
)
"""All of them, in the order in which they are listed."""

DEFAULT: Final = OPENAI_CHAT
"""The dialect of requests that show no other: most servers use it."""
