"""`make bench-published`: what is kept of published sessions, compared with plain rules.

Three packages hold the sessions. Each is downloaded as source from the registry: the templates of
CompactBench (Apache-2.0), the side constraints of COMPINT (conpact, MIT), and one person's recorded
chats with a coding assistant (the history in aider's tests, Apache-2.0). Their text is not in this
repository, and nothing here was tuned on the constraints or the chats. No model is asked.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

import ullage
from bench import venvs
from bench.cells import table
from bench.peers.ours import MODEL, Ullage
from bench.peers.plain import BestSentences, Newest, NewestUsers, Tiktoken
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.replay.uses import FEW, find_kind, list_message_terms

SHARES: Final = (0.05, 0.1, 0.2, 0.3)
CHAT: Final = 60
"""Messages of a session cut from the recorded chats; two thirds are compacted."""

LATER: Final = 12
"""Messages after a compaction that may use words from before it."""

LONGEST: Final = 30_000
"""Characters below which a recorded message is read; a few are whole pages."""

PLACES: Final = {"first": 0.0, "middle": 0.5, "late": 0.9}

Message = dict[str, Any]
Kept = dict[tuple[str, str, float], list[int]]


class Way(Protocol):
    """A way to compact a history."""

    def trim(self, history: list[Message], budget: int) -> list[Message]:
        """Return the part of the history that is kept within `budget` tokens."""


class _Judge:
    """Counts tokens, each text once."""

    def text(self, text: str) -> int:
        """Return the tokens of a text."""
        return _count(text)

    def message(self, message: Message) -> int:
        """Return the tokens of a message."""
        return _count(str(message["content"])) + 4

    def count(self, messages: Sequence[Message]) -> int:
        """Return the tokens of a history."""
        return sum(map(self.message, messages)) + 3


@lru_cache(maxsize=100_000)
def _count(text: str) -> int:
    return max(int(ullage.count([{"role": "user", "content": text}], model=MODEL)) - 7, 0)


def _judged(kind: type[Tiktoken]) -> Way:
    """Return a rule that counts tokens in the same way as the budgets."""
    made = kind.__new__(kind)
    made.judge = _Judge()  # type: ignore[assignment]
    return made


WAYS: Final[Mapping[str, Way]] = {
    "ullage": Ullage(),
    "best sentences of users": _judged(BestSentences),
    "newest user messages": _judged(NewestUsers),
    "newest messages": _judged(Newest),
}


def measure_cases(cases: Sequence[Mapping[str, Any]], kept: Kept) -> None:
    """Count, by family, how many expected answers the kept text contains."""
    for case in cases:
        history = [
            {"role": t["role"], "content": t["content"]} for t in case["transcript"]["turns"]
        ]
        family = re.sub(r"_(?:starter_)?v\d.*", "", case["template_key"]).replace("_", " ")
        wanted = [
            _normalise(value)
            for item in case["evaluation_items"]
            for value in _list_wanted(item["expected"])
        ]
        for name, share, text in _compact(history):
            found = _normalise(text)
            _note(kept, (family, name, share), [value in found for value in wanted])


def _list_wanted(expected: Mapping[str, Any]) -> list[str]:
    if expected["check"] == "contains_normalized":
        return [expected["value"]]
    return list(expected["values"]) if expected["check"] == "set_match" else []


def _normalise(text: str) -> str:
    return " ".join(text.split()).lower()


def measure_constraints(chats: Sequence[list[Message]], rules: Sequence[str], kept: Kept) -> None:
    """Count the constraints in the kept text, each added to one request of a person."""
    for chat in chats:
        asked = [n for n, message in enumerate(chat) if message["role"] == "user"][:-1]
        for place, share_of in PLACES.items():
            at = asked[int(share_of * (len(asked) - 1))]
            for number, rule in enumerate(rules):
                history = [dict(message) for message in chat]
                both = [rule, history[at]["content"]]
                history[at]["content"] = "\n\n".join(both if number % 2 else both[::-1])
                for name, share, text in _compact(history):
                    _note(kept, (f"constraint, {place}", name, share), [rule in text])


def measure_words(chats: Sequence[list[Message]], kept: Kept) -> None:
    """Count the words in the kept text that later messages use again."""
    codec = OpenAIChat()

    def list_terms(message: Message) -> set[str]:
        return list_message_terms(codec.read([message]).messages[0])

    for chat in chats:
        cut = len(chat) * 2 // 3
        cut += chat[cut]["role"] != "user"
        history, later = chat[: cut + 1], chat[cut + 1 : cut + 1 + LATER]
        where: dict[str, int] = defaultdict(int)
        for message in history[:-1]:
            for term in list_terms(message):
                where[term] += 1
        asked = list_terms(history[-1])
        rare = {t for t, n in where.items() if t not in asked and _is_rare(t, n)}
        used = {
            who: set[str]().union(*(list_terms(m) for m in later if m["role"] == who)) & rare
            for who in ("user", "assistant")
        }
        for name, share, text in _compact(history):
            there = list_terms({"role": "user", "content": text})
            for who, terms in used.items():
                taken = [term in there for term in terms]
                _note(kept, (f"words that the {who} takes up", name, share), taken)


def _is_rare(term: str, messages: int) -> bool:
    kind = find_kind(term)
    return kind is not None and (kind != "words" or messages <= FEW)


def _compact(history: list[Message]) -> Iterator[tuple[str, float, str]]:
    """Yield the text that each way keeps at each share."""
    tokens = int(ullage.count(history, model=MODEL))
    for share in SHARES:
        for name, way in WAYS.items():
            left = way.trim(history, int(tokens * share))
            yield name, share, "\n".join(str(message["content"]) for message in left)


def _note(kept: Kept, key: tuple[str, str, float], found: Sequence[bool]) -> None:
    held = kept.setdefault(key, [0, 0])
    held[0] += sum(found)
    held[1] += len(found)


def read_chats(text: str) -> list[list[Message]]:
    """Return the recorded chats as consecutive sessions of `CHAT` messages.

    A person's lines begin with four number signs, the program's with a bracket; the others are the
    model's. Consecutive lines of the same author are one message.
    """
    told: list[Message] = []
    before: str | None = None
    for line in text.splitlines():
        role = "user" if line.startswith("####") else None if line.startswith(">") else "assistant"
        bare = line.removeprefix("####").strip() if role == "user" else line.rstrip()
        if line.startswith("# aider chat started"):
            role = None
        if role is None or (not bare and role != before):
            before = None
            continue
        if told and told[-1]["role"] == role:
            told[-1]["content"] += ("\n" if role == before else "\n\n") + bare
        else:
            told.append({"role": role, "content": bare})
        before = role
    told = [{**m, "content": m["content"].strip()} for m in told if len(m["content"]) < LONGEST]
    chats = [told[n : n + CHAT] for n in range(0, len(told) - CHAT, CHAT)]
    return [chat[chat[0]["role"] != "user" :] for chat in chats]


def read_rules(source: str) -> list[str]:
    """Return the constraints of COMPINT from its source, which is parsed and not run."""
    (found,) = (
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign)
        and getattr(node.target, "id", "") == "SCS"
        and node.value
    )
    return [each["sc"] for each in ast.literal_eval(found)]


def fetch_sources(folder: Path) -> dict[str, Path]:
    """Return the unpacked sources by package, from the registry and checked by hash."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = venvs.ROOT / "requirements" / "published.txt"
    if not any(folder.glob("*.tar.gz")):
        pip = [sys.executable, "-m", "pip", *venvs.QUIETLY, "download", "--no-deps", "--no-binary"]
        command = [*pip, ":all:", "--require-hashes", "--dest", str(folder)]
        command += ["--requirement", str(lock)]
        subprocess.run(command, check=True)
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as held:
            held.extractall(folder, filter="data")
    return {path.name.split("-")[0]: path for path in folder.iterdir() if path.is_dir()}


def show(kept: Kept) -> str:
    """Return a table of the percentage that is kept at each share."""
    rows = [
        [
            what,
            name,
            *(
                f"{100 * kept[what, name, share][0] / kept[what, name, share][1]:.0f}"
                for share in SHARES
            ),
            f"{kept[what, name, SHARES[0]][1]:,}",
        ]
        for what, name in dict.fromkeys((what, name) for what, name, _ in kept)
    ]
    return table(["", "", *(f"{share:.0%}" for share in SHARES), "of"], rows)


def main() -> int:
    """Measure and print the table."""
    python = venvs.ready("published")
    if python is None:
        return 1
    sources = fetch_sources(python.parents[1] / "sources")
    templates = sources["compactbench"] / "benchmarks"
    command = [str(python), "-m", "bench.published_cases", str(templates)]
    answer = subprocess.run(command, check=True, capture_output=True, cwd=venvs.ROOT)
    history = sources["aider_chat"] / "tests/fixtures/chat-history.md"
    chats = read_chats(history.read_text("utf-8", errors="replace"))
    (rules,) = sources["conpact"].rglob("constraints.py")
    kept: Kept = {}
    measure_cases(json.loads(answer.stdout), kept)
    measure_constraints(chats[::3], read_rules(rules.read_text("utf-8")), kept)
    measure_words(chats, kept)
    print(show(kept))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
