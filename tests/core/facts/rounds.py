"""A session that goes on, and is compacted again and again."""

from __future__ import annotations

from typing import Any

import ullage


def compact_three_times(said: list[dict[str, Any]], target: int = 700, **options: Any) -> str:
    """Go on with a session for three compactions to so many tokens; return the last block."""
    for turn in range(3):
        for n in range(8):
            question = f"Question {turn}.{n}: " + "what of this valve then? " * 10
            said += [{"role": "user", "content": question}]
            said += [{"role": "assistant", "content": "so it is with it. " * 40}]
        said.append({"role": "user", "content": "And now?"})
        made = ullage.compact(said, model="gpt-4o", target_tokens=target, **options)
        said = [*made.messages, {"role": "assistant", "content": "Go on."}]
    block: str = next(m["content"] for m in said if "facts kept by rule" in m["content"])
    return block
