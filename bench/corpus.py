"""Sessions with planted facts, written from plain data: `bench/corpora/*.json`.

Each file is one author's style in one language: sentences with a fact and its required words,
rules, values that change, and filler. Files are split by author into `tuned`, which may be read
when weights are chosen, and `held`, which may not. For most authors the values are made for each
session, so no word of a file reveals the expected answers.

Natural authors (those with `told`) say more, with other wordings each time: `{this|that}` in a
sentence is one of the two, `{A}` one of the `phrases` of that name. Their facts are plain sentences
with required words; if there are several, all are required. `told` is the number of facts and
rules. `turns` is the number of turns, `long` the share of them that are letters. `prose_turn` is
how many sentences of `prose` a letter has, `answer` how many sentences an answer has. `scenes` are
the subjects of letters and rules, one per session.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "corpora"
TURNS: Final = 60
LETTERS: Final = "BDFHKLMPRTVX"


@dataclass(frozen=True, slots=True)
class Style:
    """One author: language, kind of session, `tuned` or `held`, and the sentences."""

    language: str
    kind: str
    split: str
    data: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The key under which results are counted."""
        return f"{self.split}/{self.language}/{self.kind}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A text that a result must contain, or must no longer contain."""

    text: str
    stays: bool = True
    also: tuple[str, ...] = ()
    """Other texts that the result must contain as well."""
    sentence: str = ""
    """The sentence of the author's file that says it; empty for a value that changes."""

    @property
    def parts(self) -> tuple[str, ...]:
        """All texts that are required."""
        return (self.text, *self.also)

    def is_in(self, text: str) -> bool:
        """Tell whether a text contains all parts."""
        return all(part in text for part in self.parts)


@dataclass(frozen=True, slots=True)
class Written:
    """A session in OpenAI Chat form, and the evidence in it."""

    messages: tuple[dict[str, Any], ...]
    evidence: tuple[Evidence, ...]


def load_styles() -> tuple[Style, ...]:
    """Return all authors, ordered by file name."""
    found = []
    for file in sorted(FOLDER.glob("*.json")):
        data = json.loads(file.read_text("utf-8"))
        found.append(Style(data["language"], data["kind"], data["split"], data))
    return tuple(found)


def write_session(style: Style, seed: int, turns: int = TURNS) -> Written:
    """Return a session; the same seed gives the same session."""
    rng = random.Random(f"{style.key} {seed}")
    if "told" in style.data:
        return _Talker(style.data, seed, rng).write(turns)
    return _Writer(style, rng).write(turns)


class _Writer:
    """Writes one session; each of its values is used once."""

    def __init__(self, style: Style, rng: random.Random) -> None:
        self.data, self.rng = style.data, rng
        self.numbers = iter(rng.sample(range(13, 998), 400))
        self.names = iter(rng.sample(style.data["names"], len(style.data["names"])))
        self.chats = style.kind == "chat"  # their sentences end with the line
        self.evidence: list[Evidence] = []

    def write(self, turns: int) -> Written:
        said = self._plant(turns)
        messages: list[dict[str, Any]] = []
        for turn in range(turns):
            chatter = self.rng.sample(self.data["user"], self.rng.randint(1, 4))
            for sentence in said.get(turn, ()):
                chatter.insert(self.rng.randint(0, len(chatter)), sentence)
            between = "\n" if self.chats else " "
            messages.append({"role": "user", "content": between.join(chatter)})
            if self.data["tools"]:
                messages += self._run_tools(turn)
            filler = (self.rng.choice(self.data["assistant"]) for _ in range(self._length()))
            messages.append({"role": "assistant", "content": " ".join(filler)})
        messages.append({"role": "user", "content": self.rng.choice(self.data["user"])})
        return Written(tuple(messages), tuple(self.evidence))

    def _length(self) -> int:
        return self.rng.randint(4, 9)

    def _plant(self, turns: int) -> dict[int, list[str]]:
        """Return the sentences with facts by turn; the last tenth of the session has none.

        Each sentence occurs once. A changed value is a different sentence.
        """
        said: dict[int, list[str]] = {}
        last = turns * 9 // 10
        for sentence, wanted in (*self.data["facts"], *self.data["rules"]):
            filled = self._fill(wanted, sentence)
            if filled is not None:
                told, found = filled
                said.setdefault(self.rng.randrange(last), []).append(told)
                self.evidence.append(Evidence(found, sentence=sentence))
        for older, newer in self.data["changes"]:
            item = self.rng.choice(self.data["items"])
            was, now = str(next(self.numbers)), str(next(self.numbers))
            first = older.format(n=was, item=item)
            then = newer.format(n=was, m=now, item=item)
            begin = self.rng.randrange(last // 2)
            said.setdefault(begin, []).append(first)
            said.setdefault(self.rng.randrange(begin + 1, last), []).append(then)
            self.evidence += [Evidence(first, stays=False), Evidence(then)]
        return said

    def _fill(self, wanted: str, sentence: str) -> tuple[str, str] | None:
        """Return a sentence with values and its required text, or None if no name is left."""
        name = next(self.names, None) if "{name}" in wanted else None
        if "{name}" in wanted and name is None:
            return None
        one, two = next(self.numbers), next(self.numbers)
        letters = "".join(self.rng.sample(LETTERS, 2))
        values = {
            "id": f"{letters}-{one}{two}",
            "n": one,
            "name": name or self.rng.choice(self.data["names"]),
            "day": f"{one % 28 + 1}/{two % 12 + 1}/20{40 + one % 50}",
            "item": self.rng.choice(self.data["items"]),
        }
        return sentence.format(**values), wanted.format(**values)

    def _run_tools(self, turn: int) -> Iterator[dict[str, Any]]:
        for step in range(self.rng.randint(1, 3)):
            name = f"call_{turn}_{step}"
            function = {"name": "run", "arguments": json.dumps({"command": f"step {turn}.{step}"})}
            call = {"id": name, "type": "function", "function": function}
            yield {"role": "assistant", "content": None, "tool_calls": [call]}
            text = self.rng.choice(self.data["tools"]) * self.rng.randint(1, 6)
            yield {"role": "tool", "tool_call_id": name, "content": text}


class _Pool:
    """Sentences in random order; none repeats before all were drawn."""

    def __init__(self, data: Mapping[str, Any], sentences: Sequence[str], rng: random.Random):
        self.phrases: Mapping[str, Sequence[str]] = data.get("phrases", {})
        self.sentences, self.rng = sentences, rng
        self.left: list[str] = []

    def draw(self) -> str:
        """Return the next sentence, with one wording of each choice."""
        if not self.left:
            self.left = self.rng.sample(self.sentences, len(self.sentences))
        text, found = self.left.pop(), 1
        while found:
            text, found = CHOICE.subn(self._choose, text)
        return text[:1].upper() + text[1:] if self.phrases else text

    def _choose(self, choice: re.Match[str]) -> str:
        inner = str(choice[1])
        wordings = inner.split("|") if "|" in inner else self.phrases[inner]
        return self.rng.choice(wordings)

    def draw_many(self, least: int, most: int) -> list[str]:
        """Return between `least` and `most` sentences."""
        return [self.draw() for _ in range(self.rng.randint(least, most))]


CHOICE: Final = re.compile(r"\{([^{}]*)\}")


class _Talker:
    """Writes one session of a natural author."""

    def __init__(self, data: Mapping[str, Any], seed: int, rng: random.Random) -> None:
        scenes = data.get("scenes", [{}])
        scene = scenes[seed % len(scenes)]
        self.data, self.rng = data, rng
        self.space = str(data.get("space", " "))
        self.facts, self.rules = data.get("facts", ()), scene.get("rules", data.get("rules", ()))
        prose = [*data.get("prose", ()), *scene.get("prose", ())]
        self.prose = _Pool({}, prose, rng)
        self.user = _Pool({}, data["user"], rng)
        self.assistant = _Pool(data, data["assistant"], rng)
        self.evidence: list[Evidence] = []

    def write(self, turns: int) -> Written:
        turns = min(turns, self.data["turns"])
        letters = self.rng.sample(range(turns), round(turns * self.data["long"]))
        said = self._plant(turns, letters)
        messages: list[dict[str, Any]] = []
        for turn in range(turns):
            told = said.get(turn, [])
            text = self._write_letter(told) if turn in letters else self._write_question(told)
            messages.append({"role": "user", "content": text})
            answer = self._join(self.assistant.draw_many(*self.data["answer"]))
            messages.append({"role": "assistant", "content": answer})
        messages.append({"role": "user", "content": self.user.draw()})
        return Written(tuple(messages), tuple(self.evidence))

    def _plant(self, turns: int, letters: Sequence[int]) -> dict[int, list[str]]:
        """Return sentences by turn: rules in letters, facts in questions, if there are any.

        The last tenth of the session has none.
        """
        early = range(turns * 9 // 10)
        places = {long: [turn for turn in early if (turn in letters) is long] for long in (0, 1)}
        said: dict[int, list[str]] = {}
        for long, (pool, number) in enumerate(
            zip((self.facts, self.rules), self.data["told"], strict=True)
        ):
            for sentence, wanted, *also in self.rng.sample(pool, min(number, len(pool))):
                turn = self.rng.choice(places[long] or early)
                said.setdefault(turn, []).append(sentence)
                self.evidence.append(Evidence(wanted, also=tuple(also), sentence=sentence))
        return said

    def _write_question(self, told: Sequence[str]) -> str:
        return self.space.join(self._mix(self.user.draw_many(1, 2), told))

    def _write_letter(self, told: Sequence[str]) -> str:
        prose = self._mix(self.prose.draw_many(*self.data["prose_turn"]), told)
        return f"{self._join(prose)}\n\n{self.user.draw()}"

    def _mix(self, sentences: list[str], told: Sequence[str]) -> list[str]:
        for sentence in told:
            sentences.insert(self.rng.randint(0, len(sentences)), sentence)
        return sentences

    def _join(self, sentences: list[str]) -> str:
        """Return paragraphs of two to five sentences."""
        paragraphs: list[str] = []
        while sentences:
            number = self.rng.randint(2, 5)
            paragraphs.append(self.space.join(sentences[:number]))
            sentences = sentences[number:]
        return "\n\n".join(paragraphs)


def find_evidence(evidence: Sequence[Evidence], text: str) -> tuple[int, int, int, int]:
    """Count evidence that must stay (found, total), then evidence that must go (absent, total)."""
    flat = " ".join(text.split())
    stays = [e for e in evidence if e.stays]
    goes = [e for e in evidence if not e.stays]
    kept = sum(e.is_in(flat) for e in stays)
    return kept, len(stays), sum(not e.is_in(flat) for e in goes), len(goes)
