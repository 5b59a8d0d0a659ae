"""Draws the pictures of docs/concepts from a real run; `make pictures` writes them.

The run is a conversation of 30 turns with a real llama.cpp server (the tests' tiny model, a window
of 2,048 tokens), guarded, and once more through the proxy; a session of the agent on it;
and compactions of a made-up history with tool calls.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx2
import openai

import ullage
from tests.proxy.serving import proxied
from tests.support import tinymodel
from tests.support.drawing import BLUE, FAINT, GREEN, GREY, INK, ORANGE, RED, Picture
from ullage.config.serving import ModelRule
from ullage.embedded import Launch, Server

WINDOW: Final = 2_048
TURNS: Final = 30
LEFT, RIGHT, TOP = 60.0, 690.0, 50.0
MODELS: Final = ("gpt-4o", "claude-sonnet-4-5", "qwen3-8b", "some-model")
ROLES: Final[Mapping[str, str]] = {
    "system": INK,
    "user": BLUE,
    "assistant": GREEN,
    "tool": ORANGE,
}


@dataclass
class Turn:
    """One request of the conversation: its share of the window, and its tokens by the report."""

    pressure: float
    sent: int
    compacted: bool


def talk(url: str, base_url: str) -> list[Turn]:
    """Play the conversation against `url`, guarded; the window is asked of `base_url`."""
    client = openai.OpenAI(base_url=url, api_key="none")
    guard = ullage.Guard("tiny", base_url=base_url)
    messages: list[Any] = [
        {"role": "system", "content": "You keep the log of a ship."},
        {"role": "user", "content": "Always write depths in fathoms. We sail for Oban."},
    ]
    turns = []
    for day in range(TURNS):
        view = guard.prepare(messages, max_tokens=16)
        response = client.chat.completions.create(model="tiny", temperature=0, **view.kwargs)
        view.observe(response)
        sent = response.usage.prompt_tokens if response.usage else 0
        turns.append(Turn(view.assessment.ratio or 0.0, sent, view.compaction is not None))
        messages.append(
            {"role": "assistant", "content": response.choices[0].message.content or "-"}
        )
        said = "Wind south-west, all hands well. " * 3
        messages.append({"role": "user", "content": f"Day {day}: {day + 3} fathoms. {said}"})
    return turns


def go_on(day: int, answer: str | None) -> list[Any]:
    """Return an answer and what a person says to it, as messages."""
    said = "Wind south-west, all hands well. " * 3
    return [
        {"role": "assistant", "content": answer or "-"},
        {"role": "user", "content": f"Day {day}: {day + 3} fathoms. {said}"},
    ]


def measure(base_url: str, messages: Sequence[Any]) -> float:
    """Return how many tokens the server itself counts in messages, however many they are."""
    asked = httpx2.post(f"{base_url}/chat/completions/input_tokens", json={"messages": messages})
    return float(asked.raise_for_status().json()["input_tokens"])


def scale(values: Sequence[float], most: float, bottom: float) -> list[tuple[float, float]]:
    """Return the points of a line over the whole width, `most` at the top."""
    step = (RIGHT - LEFT) / max(len(values) - 1, 1)
    return [
        (LEFT + step * place, bottom - (bottom - TOP) * value / most)
        for place, value in enumerate(values)
    ]


def draw_window(base_url: str) -> Picture:
    """Draw what was claimed of one server's window."""
    found = ullage.window(base_url=base_url)
    rows = sorted({(claim.tokens, claim.kind) for claim in found.claims})
    most = max(tokens for tokens, _ in rows)
    picture = Picture("Claims about one window", 70 + 50 * len(rows))
    picture.word(30, 30, f"what is claimed of one server: {found.tokens():,} tokens hold")
    for place, (tokens, kind) in enumerate(rows):
        y = TOP + 50 * place
        holds = tokens == found.tokens()
        picture.bar(30, y + 20, (660 * tokens / most, 14), BLUE if holds else GREY)
        said = "this holds" if holds else "no request can use it here"
        picture.word(30, y + 12, f"{tokens:,} tokens, {kind}: {said}", INK if holds else FAINT)
    return picture


def draw_count() -> Picture:
    """Draw one history counted for several models."""
    history = [each for each in make_history(12) if each["role"] in ("system", "user")]
    counts = [(model, ullage.count(history, model=model)) for model in MODELS]
    most = max(count.high for _, count in counts)
    picture = Picture("One history, counted for four models", 80 + 44 * len(counts))
    picture.word(30, 30, "one history, counted for four models: band and best value")
    for place, (model, count) in enumerate(counts):
        y = TOP + 44 * place
        across = [220 + 440 * value / most for value in (count.low, count.tokens, count.high)]
        exact = count.basis == "exact"
        picture.word(30, y + 24, model)
        picture.bar(across[0], y + 12, (across[2] - across[0], 16), GREEN if exact else GREY)
        picture.bar(across[1] - 2, y + 8, (4, 24), INK)
        words = f"{count.tokens:,}" + ("" if exact else f" ({count.low:,} to {count.high:,})")
        picture.word(220, y + 44, f"{words}, {count.basis}", FAINT)
    return picture


def draw_gauge(turns: Sequence[Turn]) -> Picture:
    """Draw the pressure of each request."""
    bottom = 250.0
    picture = Picture("Pressure over the turns of a conversation", 290)
    picture.word(30, 30, f"pressure of each request, a window of {WINDOW:,} tokens, {TURNS} turns")
    for share, name in ((1.0, "bound"), (0.8, "rung 80 %"), (0.6, "target 60 %")):
        y = bottom - (bottom - TOP) * share
        picture.line([(LEFT, y), (RIGHT, y)], RED if share == 1 else GREY, dashed=True)
        picture.word(RIGHT, y - 4, name, FAINT, "end")
    points = scale([turn.pressure for turn in turns], 1, bottom)
    picture.line(points, BLUE)
    for turn, (x, y) in zip(turns, points, strict=True):
        if turn.compacted:
            picture.bar(x - 4, y - 4, (8, 8), ORANGE)
    picture.bar(LEFT, 264, (8, 8), ORANGE)
    picture.word(LEFT + 14, 273, "a compaction", FAINT)
    return picture


def draw_two(title: str, lines: Sequence[tuple[str, str, Sequence[float]]]) -> Picture:
    """Draw two lines over the turns, each with its name and last value."""
    bottom, most = 250.0, max(max(values) for _, _, values in lines)
    picture = Picture(title, 300)
    picture.word(30, 30, title)
    picture.line([(LEFT, bottom), (RIGHT, bottom)], GREY)
    for place, (name, colour, values) in enumerate(lines):
        picture.line(scale(values, most, bottom), colour)
        picture.bar(LEFT + 320 * place, 271, (12, 8), colour)
        picture.word(LEFT + 18 + 320 * place, 280, f"{name}, at last {values[-1]:,.0f}", FAINT)
    return picture


def make_history(rounds: int) -> list[dict[str, Any]]:
    """Return a history of calls and their results."""
    history: list[dict[str, Any]] = [
        {"role": "system", "content": "You look after a cellar. Be brief."},
        {"role": "user", "content": "Never touch cask 7. Find out how much is left in each cask."},
    ]
    for number in range(rounds):
        call = {"name": "measure", "arguments": json.dumps({"cask": number})}
        history += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{number}", "type": "function", "function": call}],
            },
            {
                "role": "tool",
                "tool_call_id": f"c{number}",
                "content": f"Cask {number}: {number * 7 % 50} litres. " * (4 + number * 5 % 11),
            },
            {"role": "assistant", "content": f"Cask {number} is measured."},
            {"role": "user", "content": f"Go on with cask {number + 1}."},
        ]
    return history


def draw_messages(title: str, rounds: int, target: int) -> Picture:
    """Draw the messages of a history before and after a compaction, as high as they are large."""
    history = make_history(rounds)
    made = ullage.compact(history, target_tokens=target, model="gpt-4o")
    kept = {id(message) for message in made.messages}
    picture = Picture(title, 300)
    picture.word(30, 30, f"{made.before.tokens:,} tokens before, {made.after.tokens:,} after")
    step = 660 / len(history)
    most = max(_weigh(message) for message in [*history, *made.messages])
    for bottom, messages in ((150.0, history), (270.0, made.messages)):
        for place, message in enumerate(messages):
            height = 6 + 90 * _weigh(message) / most
            own = any(message is each for each in history)
            colour = ROLES[str(message["role"])] if own else RED
            fill = colour if id(message) in kept else "none"
            picture.bar(30 + step * place, bottom - height, (step - 2, height), colour, fill)
    x = 30.0
    for name, colour in (*ROLES.items(), ("put there for what went", RED)):
        picture.bar(x, 281, (10, 10), colour)
        picture.word(x + 15, 291, name, FAINT)
        x += 95
    picture.word(30, 167, "hollow: left out", FAINT)
    return picture


def _weigh(message: Mapping[str, Any]) -> int:
    return len(str(message.get("content") or "")) + 60 * len(message.get("tool_calls") or ())


def draw_log(base_url: str, folder: Path) -> Picture:
    """Draw the events of one session in their order."""
    log = ullage.open_log(f"sqlite:{folder}/log.db")
    agent = ullage.Agent(ullage.Provider("tiny", base_url))
    with ullage.Session.create(log) as session:
        for text in ("What is in the cellar?", "And in the loft?"):
            agent.run(session, text)
        events = log.read(session.name)
    kinds = {"user_message": BLUE, "assistant_message": GREEN, "provider_usage": ORANGE}
    picture = Picture("The events of one session", 70 + 24 * len(events))
    picture.word(30, 30, "the events of one session of two turns, as they stand in its log")
    for place, event in enumerate(events):
        y = TOP + 24 * place
        picture.bar(30, y, (10, 16), kinds.get(event.type, GREY))
        picture.word(52, y + 13, f"{event.seq:2}  {event.type}")
        said = str(event.data.get("text", ""))[:60]
        picture.word(230, y + 13, said, FAINT)
    return picture


def draw_all(folder: Path) -> None:
    """Play, and write every picture."""
    with TemporaryDirectory() as name:
        model = tinymodel.make(Path(name) / "tiny.gguf")
        with Server(model, Launch(window=WINDOW)) as server:
            url = server.start().base_url
            turns = talk(url, url)
            with proxied(url.removesuffix("/v1"), rules=(ModelRule(window=WINDOW),)) as proxy:
                draw_window(url).save(folder / "window.svg")
                draw_proxy(f"{proxy.url}/v1", url).save(folder / "proxy.svg")
            draw_log(url, Path(name)).save(folder / "log.svg")
    draw_count().save(folder / "count.svg")
    draw_gauge(turns).save(folder / "gauge.svg")
    draw_messages("Calls and results before and after", 5, 260).save(folder / "laws.svg")
    draw_messages("A history before and after", 14, 700).save(folder / "compaction.svg")
    paid = list(accumulate(turn.sent for turn in turns))
    lines = [("sent in all", ORANGE, paid), ("in the window", BLUE, [turn.sent for turn in turns])]
    draw_two("tokens paid for, and tokens in the window", lines).save(folder / "ledger.svg")


def draw_proxy(url: str, server: str) -> Picture:
    """Play a client that never compacts through the proxy; draw what it sends and what goes out."""
    client = openai.OpenAI(base_url=url, api_key="none")
    messages: list[Any] = [
        {"role": "user", "content": "Write depths in fathoms. We sail for Oban."}
    ]
    came, went = [], []
    for day in range(TURNS):
        done = client.chat.completions.create(
            model="tiny", messages=messages, max_tokens=16, temperature=0
        )
        came.append(measure(server, messages))
        went.append(float(done.usage.prompt_tokens if done.usage else 0))
        messages += go_on(day, done.choices[0].message.content)
    lines = [("the client sends", ORANGE, came), ("the server is sent", BLUE, went)]
    return draw_two(f"tokens of each request, a window of {WINDOW:,}", lines)


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]))
