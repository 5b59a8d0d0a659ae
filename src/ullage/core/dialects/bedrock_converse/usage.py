"""Usage reports of Bedrock's Converse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ullage.core.dialects.usage import MALFORMED, Usage, tokens_in


def read_usage(fields: Mapping[str, Any]) -> Usage | None:
    """Read a report: `inputTokens` does not include cache reads and writes.

    Source: Bedrock's user guide, "Prompt caching".
    """
    prompt = tokens_in(fields, "inputTokens", absent=MALFORMED)
    read = tokens_in(fields, "cacheReadInputTokens")
    written = tokens_in(fields, "cacheWriteInputTokens")
    output = tokens_in(fields, "outputTokens")
    if min(prompt, read, written, output) < 0:
        return None
    return Usage(prompt, read, written, output)
