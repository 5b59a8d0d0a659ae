"""Cache hints for a provider about the prefix that requests share: a key, and marks on the history.

Requests of a session and of its forks begin with the same bytes. This module tells the provider, if
the provider has a field for it. It changes no text and knows no guard.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects import registry

if TYPE_CHECKING:
    from ullage.core.session.log.fold import Fold

MARK: Final[Mapping[str, Any]] = {"cache_control": {"type": "ephemeral"}}
"""A prompt is cached up to this mark (Anthropic's documentation, "Prompt caching"). A request has
at most four: two on the system prompt (`agent.kit`), two on the history.
"""

UNMARKED: Final = frozenset({"thinking", "redacted_thinking", "compaction"})
"""Types of blocks that take no mark (the same page; it does not mention `compaction`)."""


def find_root(fold: Fold, session: str) -> str:
    """Return the session whose prefix a session shares: the first of its forks, or itself.

    Subagents share the prompts and tools of the session that they work for.
    """
    told = (fold.forked.get("root"), fold.forked.get("parent"), fold.created.get("root"))
    return next((root for root in told if isinstance(root, str)), session)


def add_cache_hints(
    fields: Mapping[str, Any], options: Mapping[str, Any], root: str, spoken: str, base_url: str
) -> dict[str, Any]:
    """Return the fields of a request with the key of `root` and marks on the history.

    `spoken` is the dialect; `options` are the caller's own fields, which win. The key is a hash, so
    that session names are not sent.
    """
    made, dialect = dict(fields), registry.find(spoken)
    key = dialect.endpoint.cache_key(base_url)
    if key is not None and key not in options:
        made[key] = f"ullage-{blake2b(root.encode(), digest_size=16).hexdigest()}"
    name = dialect.fields.messages
    if dialect.fields.takes_blocks and "cache_control" not in options:
        made[name] = _mark_history([_write_blocks(message) for message in made[name]])
    return made


def _mark_history(messages: list[Any]) -> list[Any]:
    """Return messages with a mark at the end, and one before the last user message.

    The first serves the next call of the turn, the second the next turn and forks. Only marks move:
    for a model that binds thinking to earlier text, everything else stays as it was.
    """
    spoke = [place for place, message in enumerate(messages) if _is_spoken(message)]
    for place in {len(messages) - 1, *(n - 1 for n in spoke[-1:] if n)}:
        messages[place] = _mark(messages[place])
    return messages


def _write_blocks(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message with its text as a block, whether the block will carry a mark or not."""
    content = message["content"]
    if not isinstance(content, str):
        return message
    return {**message, "content": [{"type": "text", "text": content}] if content else []}


def _is_spoken(message: Mapping[str, Any]) -> bool:
    """Tell whether a message has a person's words, and not only results of tools."""
    blocks = message["content"]
    said = any(block.get("type") != "tool_result" for block in blocks)
    return said and bool(message["role"] == "user")


def _mark(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message with a mark on its last block; unchanged if that block takes none."""
    content = message["content"]
    if not content or content[-1].get("type") in UNMARKED:
        return message
    return {**message, "content": [*content[:-1], {**content[-1], **MARK}]}
