"""Recognises log lines of servers about cut prompts, with a table.

Each row has a sample line and its source. Lines that match no row are ignored.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LONGEST: Final = 4096
"""Characters of a line that are searched; a log may hold whole prompts."""


class LogLine(NamedTuple):
    """One wording: the server, its meaning, its pattern, a sample, and the source.

    Groups of the pattern are `prompt` (the tokens of the prompt) and `limit` (the tokens that were
    read), if the line has them.
    """

    server: str
    means: str
    pattern: re.Pattern[str]
    sample: str
    source: str


CUT, SHIFTED, REFUSED = "cut a prompt", "dropped older tokens while it answered", "refused a prompt"

ROWS: Final = (
    LogLine(
        "Ollama",
        CUT,
        re.compile(r"truncating input prompt\"? +limit=(?P<limit>\d+) prompt=(?P<prompt>\d+)"),
        'time=2025-11-03T10:11:12.345Z level=WARN source=runner.go:153 msg="truncating input '
        'prompt" limit=4096 prompt=13789 keep=4 new=4096',
        "ollama/ollama, runner/ollamarunner/runner.go; the half of a window in `limit` since 0.30",
    ),
    LogLine(
        "Ollama",
        "left whole messages out",
        re.compile(r"truncating (?:input|native chat) messages which exceed context length"),
        'time=2025-11-03T10:11:12.345Z level=DEBUG source=prompt.go:60 msg="truncating input '
        'messages which exceed context length" truncated=3',
        "ollama/ollama, server/prompt.go",
    ),
    LogLine(
        "llama.cpp",
        CUT,
        re.compile(
            r"input truncated, n_ctx = (?P<limit>\d+), n_keep = -?\d+, n_left = -?\d+, "
            r"n_prompt_tokens = (?P<left>\d+)"
        ),
        "slot update_slots: id  0 | task 0 | input truncated, n_ctx = 4096, n_keep = 0, "
        "n_left = 4096, n_prompt_tokens = 3217",
        "ggml-org/llama.cpp, tools/server/server.cpp, before it refused such prompts (2025)",
    ),
    LogLine(
        "llama.cpp",
        SHIFTED,
        re.compile(r"slot context shift, n_keep = -?\d+, n_left = \d+, n_discard = (?P<lost>\d+)"),
        "slot   operator(): id  0 | task 37335 | slot context shift, n_keep = 4, n_left = 4091, "
        "n_discard = 2045",
        "ggml-org/llama.cpp, tools/server/server-context.cpp, with --context-shift; Ollama's log "
        "has it too",
    ),
    LogLine(
        "llama.cpp",
        REFUSED,
        re.compile(
            r"request \((?P<prompt>\d+) tokens\) exceeds the available context size "
            r"\((?P<limit>\d+) tokens\)"
        ),
        "srv    send_error: task id = 0, error: request (2619 tokens) exceeds the available "
        "context size (2048 tokens), try increasing it",
        "recorded from a llama.cpp server of 2026 (tests)",
    ),
    LogLine(
        "LM Studio",
        REFUSED,
        re.compile(
            r"[Tt]rying to keep the first (?P<prompt>\d+) tokens when context the overflows\. "
            r"However, the model is loaded with context length of only (?P<limit>\d+) tokens"
        ),
        "Error: Trying to keep the first 5120 tokens when context the overflows. However, the "
        "model is loaded with context length of only 4096 tokens, which is not enough.",
        "lmstudio-ai/lmstudio-bug-tracker 237, 1620",
    ),
    LogLine(
        "LM Studio",
        "stopped an answer at the end of the window",
        re.compile(r"Reached context length of (?P<limit>\d+) tokens"),
        "Reached context length of 4096 tokens with model (arch: gpt-oss) that does not currently "
        "support mid-generation context overflow.",
        "lmstudio-ai/lmstudio-bug-tracker 1251",
    ),
    LogLine(
        "SGLang",
        CUT,
        re.compile(
            r"Truncated\. len\(req\.origin_input_ids\)=(?P<prompt>\d+), "
            r"max_req_(?:input_)?len=(?P<limit>\d+)"
        ),
        "Request length is longer than the KV cache pool size or the max context length. "
        "Truncated. len(req.origin_input_ids)=25000, max_req_input_len=20000.",
        "sgl-project/sglang, managers/scheduler.py, with --allow-auto-truncate",
    ),
)


def read_line(line: str) -> str | None:
    """Return the message of a line about a cut prompt, or None."""
    text = line[:LONGEST]
    for row in ROWS:
        found = row.pattern.search(text)
        if found is not None:
            return f"{row.server} {row.means}{_describe(found.groupdict())}"
    return None


def _describe(told: dict[str, str | None]) -> str:
    """Return the numbers of a line in words."""
    prompt, limit = told.get("prompt"), told.get("limit")
    if prompt and limit:
        return f": {int(prompt):,} tokens, of which {int(limit):,} fit"
    if told.get("left"):
        return f": {int(told['left'] or 0):,} tokens were left of it, window {int(limit or 0):,}"
    if told.get("lost"):
        return f": {int(told['lost'] or 0):,} tokens"
    return f": the window has {int(limit):,} tokens" if limit else ""
