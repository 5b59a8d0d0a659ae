"""Usage reports of the Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ullage.core.dialects.usage import MALFORMED, Usage, details_in, split_answer, tokens_in


def read_usage(fields: Mapping[str, Any]) -> Usage | None:
    """Read a report: `input_tokens` does not include cache reads and writes."""
    prompt = tokens_in(fields, "input_tokens", absent=MALFORMED)
    read = tokens_in(fields, "cache_read_input_tokens")
    output = tokens_in(fields, "output_tokens")
    by_age = details_in(fields, "cache_creation")
    spent = details_in(fields, "output_tokens_details")
    if by_age is None or spent is None:
        return None
    ages = [tokens_in(by_age, f"ephemeral_{age}_input_tokens") for age in ("5m", "1h")]
    absent = sum(ages) if min(ages) >= 0 else MALFORMED
    written = tokens_in(fields, "cache_creation_input_tokens", absent=absent)
    thought = tokens_in(spent, "thinking_tokens")
    if min(prompt, read, written, output, thought) < 0:
        return None
    return Usage(prompt, read, written, *split_answer(output, thought))
