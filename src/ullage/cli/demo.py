"""`ullage demo`: one conversation, several windows long, unguarded and guarded, on a real server.

It starts the embedded llama.cpp server with a small model, asks it for its window, and draws on
stderr how each turn fills it (one gauge line for each turn without a terminal). At the end the
model is asked for facts from the beginning. The program checks whether each fact was in the
request, whatever the model answers. The table (or one JSON document) goes to stdout.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from ullage.api.functions import count
from ullage.cli import endpoint, lines, scenario
from ullage.cli.duel import DuelClient, Guarded, Score, Step, Unguarded, play
from ullage.cli.fill import Chart, TurnFill
from ullage.core.compaction.policy import Policy, Rung
from ullage.core.summary.flaws import name_strategies
from ullage.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.core.summary.question import SummaryRequest

SUMMARY = "hold a conversation of several windows on a real model, with and without the guard"

WINDOW: Final = 2048
TURNS: Final = 64
QUICK_TURNS: Final = 22
QUICK_WINDOW: Final = 1536
OUTPUT: Final = 24
"""Tokens of an answer: enough for two short sentences, so that most of the time goes to the
windows."""

MODEL: Final = "smollm2-135m"

GROUPS: Final[Mapping[str, str]] = {
    "facts_sent": "facts sent",
    "facts_found": "  or found",
    "facts_answered": "  answered",
}
"""The counts of facts, and their names in the table."""

BEFORE: Final = 45
"""Characters of a line that are shown before the fact in it."""

CHECKED: Final = """
  sent, search: looked up by this program in the request, and in the texts left out of it;
  answer: the model's own."""

LARGER: Final = """
  So small a model can rarely answer from the facts in its prompt; a larger one does better:
  ullage demo --model qwen2.5-coder-0.5b (491 MB, once)."""

NEXT: Final = """
next:
  ullage context --from claude --last       what fills a session that you have
  ullage serve --upstream http://HOST:PORT  the same guard for every client
  ullage chat --embedded --no-tools         talk to the small model"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_TURNS} turns in a smaller window, about a minute",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--model",
        default=MODEL,
        help=f"embedded model ({MODEL}; qwen2.5-coder-0.5b or -1.5b for summaries) or a .gguf file",
    )
    parser.add_argument(
        "--summaries",
        action="store_true",
        help="let the model itself summarise the middle (too much for the default model)",
    )


def run(given: argparse.Namespace) -> int:
    """Run the demo; exit code 1 if a guarded turn failed."""
    size, length = (QUICK_WINDOW, QUICK_TURNS) if given.quick else (WINDOW, TURNS)
    turns = scenario.script(length)
    started = time.perf_counter()
    with endpoint.make_embedded_server(given.model, size) as server:
        chat = DuelClient(server.base_url, Transport())
        options = _summaries(chat) if given.summaries else {}
        side = Guarded(chat, OUTPUT, options)
        window = side.guard.window()
        _say(f"server  {given.model} on llama.cpp, {window.explain()}")
        size = window.tokens() or size
        watch = _Watch(
            f"unguarded: {len(turns)} turns, every request carries the whole history", size
        )
        plain = play(Unguarded(chat, OUTPUT), scenario.SYSTEM, turns, watch.show)
        watch.finish()
        watch = _Watch(
            f"guarded: the same {len(turns)} turns through ullage.Guard, default ladder", size
        )
        kept = play(side, scenario.SYSTEM, turns, watch.show)
        watch.finish()
        if given.model == MODEL:
            _say(LARGER)
        full = count(kept.history, base_url=server.base_url).tokens
    report = _report(window.tokens(), full, (plain, kept), time.perf_counter() - started)
    print(json.dumps(report, indent=2) if given.json else _table(report))
    _say(NEXT)
    return 0 if kept.failures == 0 else 1


def _summaries(chat: DuelClient) -> dict[str, Any]:
    """Return guard options that let the chat model summarise at the first rung."""

    def summarise(request: SummaryRequest) -> str:
        asked = [
            {"role": "system", "content": request.system},
            {"role": "user", "content": request.prompt},
        ]
        reply = chat.create(messages=asked, max_tokens=request.max_tokens)
        text: str = reply["choices"][0]["message"]["content"]
        return text

    rung = Rung(0.80, 0.60, ("summarise_middle", "clear", "trim_oldest"))
    return {"summarizer": summarise, "policy": Policy(name="demo", rungs=(rung,))}


class _Watch:
    """Shows one side: the window turn by turn, then the results for the facts."""

    def __init__(self, title: str, window: int) -> None:
        self._live = lines.fits(sys.stderr)
        self._chart = Chart(title if self._live else "", window)
        self._asked: list[Step] = []
        self._dead = False
        _say("" if self._live else f"\n{title}")

    def show(self, step: Step) -> None:
        """Show one step; for a conversation that has failed, only that it still fails."""
        sent = None if step.error else step.tokens
        self._chart.add(TurnFill(sent, compacted=bool(step.compactions)), _describe(step))
        if not self._live and not self._dead:
            _say(_describe(step))
        elif not self._live and step.number % 10 == 0:
            _say(f"  turn {step.number:>3}  still refused")
        self._dead = bool(step.error)
        if step.asks is not None and not step.error:
            self._asked.append(step)

    def finish(self) -> None:
        """Show the whole picture, and each fact that was asked for."""
        self._chart.finish()
        for step in self._asked:
            _say(_remember(step))
        if self._asked:
            _say(CHECKED)


def _describe(step: Step) -> str:
    line = f"  turn {step.number:>3}  {step.meter}"
    for made in step.compactions:
        how = name_strategies(made.strategy, made.fallback_reason)
        line += f"  compacted {made.tokens_before:,} -> {made.tokens_after:,} ({how})"
    line += "".join(f"  {note}" for note in step.notes)
    if step.error:
        line += f"  FAILED: {step.error[:140]}"
    return line


def _remember(step: Step) -> str:
    """Return the result for a fact: where it was found, and the answer."""
    fact = step.asks
    assert fact is not None  # noqa: S101 - only steps that ask are kept
    where = "sent" if step.held else "search" if step.found else "sent"
    line = step.held or step.found or "nothing of it"
    there = lines.brief(line[max(0, line.find(fact.value) - BEFORE) :], 70)
    return "\n".join(
        (
            f"  asked:  {fact.asked} (said {step.number - fact.turn} turns ago)",
            f"  {where + ':':7} {there}",
            f"  answer: {lines.brief(step.answer, 70)} [{'right' if step.holds else 'wrong'}]",
        )
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _report(window: int, size: int, scores: tuple[Score, Score], seconds: float) -> dict[str, Any]:
    return {
        "window_tokens": window,
        "conversation_tokens": size,
        "windows": round(size / window, 1),
        "seconds": round(seconds, 1),
        "unguarded": _side(scores[0]),
        "guarded": _side(scores[1]),
    }


def _side(score: Score) -> dict[str, Any]:
    hows = dict.fromkeys(fact.how for fact in scenario.FACTS)
    return {
        "turns": score.turns,
        "completed": score.completed,
        "overflow_errors": score.overflows,
        "first_error": score.first_error,
        "compactions": score.compactions,
        "tokens_saved": score.saved_tokens,
        "facts_sent": {how: _tally(score.sent_facts, how) for how in hows},
        "facts_found": {how: _tally(score.found_facts, how) for how in hows},
        "facts_answered": {how: _tally(score.answered_facts, how) for how in hows},
        "seconds_in_model": round(score.model_s, 2),
        "seconds_in_ullage": round(score.guard_s, 3),
    }


def _tally(found: list[scenario.Fact], how: str) -> str:
    told = sum(fact.how == how for fact in scenario.FACTS)
    return f"{sum(fact.how == how for fact in found)}/{told}"


def _table(report: dict[str, Any]) -> str:
    plain, kept = report["unguarded"], report["guarded"]
    rows: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
        ("turns completed", lambda s: f"{s['completed']}/{s['turns']}"),
        ("overflow errors", lambda s: s["overflow_errors"]),
        ("compactions", lambda s: s["compactions"]),
        ("tokens saved", lambda s: f"{s['tokens_saved']:,}"),
        *(
            (f"{words}, told {how}", _pick(group, how))
            for group, words in GROUPS.items()
            for how in plain[group]
        ),
        ("seconds in the model", lambda s: s["seconds_in_model"]),
        ("seconds in ullage", lambda s: s["seconds_in_ullage"]),
    ]
    lines = [
        (
            f"\n{report['conversation_tokens']:,} tokens of conversation, {report['windows']} "
            f"windows of {report['window_tokens']:,}, {report['seconds']} s in all"
        ),
        f"{'':34}{'unguarded':>12}{'guarded':>12}",
    ]
    lines += [f"{name:34}{value(plain)!s:>12}{value(kept)!s:>12}" for name, value in rows]
    return "\n".join(lines)


def _pick(group: str, how: str) -> Callable[[dict[str, Any]], object]:
    return lambda side: side[group][how]
