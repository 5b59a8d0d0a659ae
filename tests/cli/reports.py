"""Context reports for tests: realistic ones by name, and a strategy that makes any number more.

`report` is the one place that closes the sums, so that every sample keeps the identities.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b]0;owned\x07\x1b[2J\u202egnp.exe"
BASES = ("provider", "server", "exact", "calibrated", "estimate", "inferred")
NAMES = {
    "prefix": "system prompt and tools",
    "system": "system prompt",
    "tools": "tool schemas",
    "user": "user messages",
    "assistant": "assistant text",
    "reasoning": "reasoning",
    "tool_calls": "tool calls",
    "tool_results": "tool results",
    "images": "images",
    "files": "files",
    "checkpoint": "summary of turns 1-18",
    "framing": "framing",
    "unattributed": "unattributed",
}


def item(name: str, tokens: int, count: int = 1, copies: int = 0, spare: int = 0) -> dict[str, Any]:
    return {
        "name": name,
        "tokens": tokens,
        "count": count,
        "duplicates": copies,
        "reclaimable": spare,
    }


def _entry(name: str, tokens: int, message: int) -> dict[str, Any]:
    return {"name": name, "tokens": tokens, "message": message}


def row(name: str, tokens: int, basis: str = "exact", /, **more: Any) -> dict[str, Any]:
    error = 0.03 if basis in ("calibrated", "estimate") else None
    around = round(abs(tokens) * (error or 0))
    told = {"note": "", "items": [], "error": error, **more}
    return {
        "id": name,
        "name": NAMES[name],
        "tokens": tokens,
        "low": tokens - around,
        "high": tokens + around,
        "basis": basis,
        **told,
    }


def report(
    rows: list[dict[str, Any]], window: int | None = 200_000, /, **more: Any
) -> dict[str, Any]:
    """Return a report of these rows; `more` replaces keys, the sums are made to hold."""
    used = sum(each["tokens"] for each in rows)
    margin = more.get("margin", 4_000 if window else 0)
    reserved = more.get("reserved_output", 16_000 if window else 0)
    free = None if window is None else window - used - margin - reserved
    told = {
        "tokens": window,
        "source": "listing",
        "said_by": "input window listed by the provider, 3 h ago",
        "note": "",
    }
    return {
        "schema": "ullage.context/1",
        "source": {"kind": "claude", "path": "x.jsonl", "session": "7f3a"},
        "model": "claude-sonnet-4-5",
        "window": None if window is None else told,
        "used": {
            "tokens": used,
            "low": used - 900,
            "high": used + 900,
            "basis": "provider",
            "error": None,
        },
        "free": free,
        "margin": margin,
        "reserved_output": reserved,
        "over": max(0, -(free or 0)),
        "tier": "unavailable" if window is None else "advisory",
        "ratio": None if window is None else used / window,
        "reason": "context_window_unknown" if window is None else None,
        "compaction_at": None,
        "rows": rows,
        "since": None,
        "largest": [],
        "turns": [],
        "growth": None,
        "spent": None,
        "warnings": [],
        **more,
    }


def worked() -> dict[str, Any]:
    """The worked example: a known window, 128,000 of 200,000 tokens."""
    reads = [
        item("read_file", 41_002, 12, 3, 11_870)
        | {"entries": [_entry("read_file src/ledger.py, turn 14", 9_120, 57), _entry("x", 10, 3)]},
        item("bash", 19_338, 31),
        item("grep", 7_900, 9),
    ]
    tools = [
        item("mcp:github", 9_210, 14),
        item("built-in", 8_930, 18),
        item("mcp:playwright", 3_340, 6),
    ]
    rows = [
        row("system", 6_120),
        row("tools", 21_480, "estimate", items=tools, note="38 tools sent, 22 deferred"),
        row("user", 4_310),
        row("assistant", 11_905),
        row("tool_calls", 7_460),
        row("tool_results", 68_240, items=reads),
        row("images", 4_743, "estimate"),
        row("checkpoint", 2_190, note="replaced 61,400 tokens"),
        row("unattributed", 1_552, "inferred"),
    ]
    return report(
        rows,
        compaction_at=153_000,
        since={"tokens": 900, "messages": 3},
        growth=4_150,
        largest=[
            _large(12, "tool result: read_file", 5_210, 14),
            _large(57, "tool result: bash", 4_812, 3),
            _large(60, "user message", 2_100, 1),
        ],
        spent={
            "input": 41_200,
            "cache_read": 2_109_312,
            "cache_write": 188_020,
            "output": 24_960,
            "reasoning": 0,
            "dollars": 1.84,
            "basis": "estimate",
            "reported_output": 563,
        },
        turns=turns(28, 200_000),
    )


def _large(message: int, name: str, tokens: int, sent: int) -> dict[str, Any]:
    return {
        "message": message,
        "name": name,
        "tokens": tokens,
        "sent": sent,
        "resent_tokens": tokens * (sent - 1),
    }


def unknown() -> dict[str, Any]:
    """Return a report without a window: an own count, no share, no rest."""
    rows = [row("system", 1_200), row("user", 8_000), row("assistant", 3_010, "estimate")]
    used = {"tokens": 12_210, "low": 12_000, "high": 12_600, "basis": "estimate", "error": 0.03}
    return report(rows, None, model=None, source=None, used=used, turns=turns(9, None))


def over() -> dict[str, Any]:
    """Return a report whose request is past the limit."""
    rows = [row("system", 6_000), row("user", 22_000), row("tool_results", 171_000, "provider")]
    made = report(
        rows, tier="overflow", compaction_at=153_000, warnings=["the next call will be refused"]
    )
    made["window"] |= {"assumed": True, "note": "the file names no window; --window N corrects it"}
    return made


def overcounted() -> dict[str, Any]:
    """Return a report whose rows were counted too high: a negative residual."""
    rows = [
        row("user", 9_000, "estimate"),
        row("assistant", 5_000, "calibrated"),
        row("unattributed", -1_400, "inferred", note="provider total less our rows"),
    ]
    return report(rows, 32_768, margin=512, reserved_output=4_096, tier="none")


def turns(count: int, window: int | None, compacted: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """Return `count` turns that grow, and fall at the turns `compacted`."""
    made = []
    results, summary = 0, 0
    for number in range(1, count + 1):
        results += 2_300 + (number * 7_919) % 1_700
        if number in compacted:
            results, summary = results // 6, 2_190
        rows = {
            "system": 6_120,
            "tools": 21_480,
            "user": 90 * number,
            "assistant": 210 * number,
            "tool_calls": 160 * number,
            "tool_results": results,
            "checkpoint": summary,
        }
        made.append(
            {
                "turn": number,
                "at": f"2026-11-21T{number // 60 % 24:02}:{number % 60:02}:00Z",
                "model": "claude-sonnet-4-5",
                "tokens": sum(rows.values()),
                "basis": "provider",
                "window": window,
                "compacted": number in compacted,
                "output": 40 * number,
                "output_basis": "estimate" if number % 2 else "provider",
                "rows": rows,
            }
        )
    return made


def long() -> dict[str, Any]:
    """Return a session of 60 turns with two compactions and a window that grew."""
    made = turns(60, 200_000, (29, 47))
    for turn in made[:12]:
        turn["window"] = 128_000
    rows = [row(name, tokens) for name, tokens in made[-1]["rows"].items()]
    return {**worked(), **report(rows, turns=made, compaction_at=153_000, growth=3_020)}


def hostile() -> dict[str, Any]:
    """Return a report whose every name was written by an enemy."""
    items = [item(HOSTILE, 900, 2, 1, 450), item("<b>bold</b> & 'q' \"d\"", 100)]
    rows = [row("user", 500, name=HOSTILE, note=HOSTILE), row("tool_results", 1_000, items=items)]
    made = [{**turn, "model": HOSTILE, "at": HOSTILE} for turn in turns(3, 8_192)]
    return report(
        rows,
        8_192,
        margin=100,
        reserved_output=1_000,
        model=HOSTILE,
        source={"kind": HOSTILE, "path": HOSTILE, "session": HOSTILE},
        window={"tokens": 8_192, "source": "override", "said_by": HOSTILE, "note": HOSTILE},
        reason=HOSTILE,
        largest=[_large(1, HOSTILE, 900, 2)],
        turns=made,
        warnings=[HOSTILE, "\x9b31mred"],
    )


def samples() -> dict[str, dict[str, Any]]:
    """Return every sample by its name."""
    made = (worked, unknown, over, overcounted, long, hostile)
    return {make.__name__: make() for make in made}


TEXTS = st.text(max_size=40)


@st.composite
def any_row(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(sorted(NAMES)))
    lowest = -50_000 if name == "unattributed" else 0
    things = st.builds(item, TEXTS, *(st.integers(0, 90_000) for _ in range(4)))
    return row(
        name,
        draw(st.integers(lowest, 900_000)),
        draw(st.sampled_from(BASES)),
        name=draw(TEXTS),
        note=draw(TEXTS),
        items=draw(st.lists(things, max_size=4)),
    )


@st.composite
def any_report(draw: st.DrawFn) -> dict[str, Any]:
    window = draw(st.none() | st.integers(1, 2_000_000))
    made = turns(draw(st.integers(0, 150)), window, (3, 70))
    large = st.builds(_large, st.integers(0, 999), TEXTS, st.integers(0, 90_000), st.just(3))
    return report(
        draw(st.lists(any_row(), max_size=6, unique_by=lambda each: each["id"])),
        window,
        model=draw(st.none() | TEXTS),
        compaction_at=draw(st.none() | st.integers(0, 2_000_000)) if window else None,
        largest=draw(st.lists(large, max_size=3)),
        turns=made,
        warnings=draw(st.lists(TEXTS, max_size=2)),
        growth=draw(st.none() | st.integers(-9_999, 9_999)),
    )
