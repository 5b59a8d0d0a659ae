"""A seeded generator of agent-like transcripts with facts planted in them, for tests and benches.

Templates stand in two sets: `SEEN`, on which the finder was tuned, and `HELD`, written before that
and never tuned on. Rules, prohibitions, identifiers, paths, numbers, open tasks and superseded
values go in mid-session, between tool calls, code, logs, small talk and sentences that use the
words of rules without being any. It knows nothing of how facts are found.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Kind = Literal[
    "rule", "prohibition", "identifier", "path", "number", "task", "superseded", "current"
]
KINDS: Final[tuple[Kind, ...]] = (
    "rule",
    "prohibition",
    "identifier",
    "path",
    "number",
    "task",
    "superseded",
    "current",
)
Set = Literal["seen", "held", "wild"]


@dataclass(frozen=True, slots=True)
class Planted:
    """A fact in a transcript: what to look for, the message it stands in, what must become of it.

    `text` is what has to be found, or must not be: the whole sentence of a rule, a prohibition, a
    task and a superseded value, the bare value of the others.
    """

    kind: Kind
    text: str
    position: int
    must: Literal["present", "absent"] = "present"

    def holds(self, rendered: str) -> bool:
        """Tell whether the fact is where, or gone as, it must be."""
        flat = " ".join(rendered.replace('\\"', '"').replace("\\n", " ").split())
        return (self.text in flat) == (self.must == "present")


@dataclass(frozen=True, slots=True)
class Corpus:
    """A transcript in OpenAI Chat form, and what was planted in it."""

    messages: tuple[dict[str, Any], ...]
    planted: tuple[Planted, ...]


@dataclass(frozen=True, slots=True)
class Templates:
    """Phrasings of each kind of fact; `changes` are pairs of an older and a newer sentence."""

    rules: tuple[str, ...]
    prohibitions: tuple[str, ...]
    identifiers: tuple[str, ...]
    numbers: tuple[str, ...]
    tasks: tuple[str, ...]
    changes: tuple[tuple[str, str], ...]
    distractors: tuple[str, ...]


SEEN: Final = Templates(
    rules=(
        "Always run {cmd} before you push anything.",
        "From now on, log through {lib} only.",
        "Make sure every public function in {path} has a docstring.",
        "Please use {lib} for HTTP calls, not {lib2}.",
        "Keep functions under {num} lines.",
        "Remember that {path} is generated from the schema.",
        "All commits must reference {id}.",
        "I prefer tabs in {dir}, please.",
        "Our convention is to name test files after {path}.",
        "Retries should be capped at {num} attempts.",
        "Stick to {lib} for anything that touches {dir}.",
        "Whenever you change {path}, bump the version in {path2}.",
        "Only {name} may approve changes to {dir}.",
        "At most {num} requests per minute go to {host}.",
        "It is important that {path} stays readable by Python 3.8.",
        "Note that deployments to {host} need two approvals.",
        "Immer zuerst {cmd} ausführen.",
        "Il faut toujours garder {path} en UTF-8.",
        "以后所有日志都必须用 {lib} 输出。",
    ),
    prohibitions=(
        "Never touch {path}.",
        "Don't add {lib} as a dependency.",
        "You must not call {host} from tests.",
        "Do not reformat {path} under any circumstances.",
        "Avoid {lib} in {dir}.",
        "No network access while {cmd} is running.",
        "Leave {path} alone.",
        "{dir} is off limits.",
        "Stay away from {path}, {name} is working on it.",
        "We no longer accept changes to {path}.",
        "Under no circumstances should {path} be renamed.",
        "Hands off {dir} until {name} is back.",
        "Everything may change except {path}.",
        "Nothing in {dir} may import {lib}.",
        "Bitte {path} niemals löschen.",
        "N'utilise jamais {lib} dans {dir}.",
        "No uses {lib} en {dir}.",
        "不要修改 {path}。",
    ),
    identifiers=(
        "The ticket for this is {id}.",
        "Staging lives at https://{host}/api/v2.",
        "The failing build is {hash}.",
        "Send the report to {name}@{host} when it is there.",
        "The customer id is {id}.",
        "Our account number there is {big}.",
        "The session token starts with {hash}.",
    ),
    numbers=(
        "The baseline was {big} requests per second.",
        "We measured {big} ms at p99 last week.",
        "The budget for this quarter is {big} dollars.",
        "There are {big} rows in the orders table.",
        "The service listens on port {big}.",
    ),
    tasks=(
        "TODO: write a migration for {path}.",
        "Still to do: rename {path} to something sane.",
        "Remind me to rotate the key of {host}.",
        "Later we must also port {dir} to {lib}.",
        "Next: benchmark {path} against {lib}.",
        "- [ ] add a test for {path}",
    ),
    changes=(
        ("Use port {a} for the dev server.", "Use port {b} for the dev server instead."),
        ("Keep lines under {a} characters.", "Keep lines under {b} characters."),
        ("The release branch is called rel-{a}.", "The release branch is now called rel-{b}."),
        ("The timeout must be {a} seconds.", "Actually, the timeout must be {b} seconds."),
        (
            "Always deploy to cluster c{a} first.",
            "Scratch that, always deploy to cluster c{b} first.",
        ),
    ),
    distractors=(
        "I never liked Mondays.",
        "Must be the weather.",
        "I always forget how this part works.",
        "Don't worry about the delay.",
        "That should do it.",
        "It only took a minute.",
        "Never mind, it was on my side.",
        "I need to run to a meeting.",
        "I don't know what changed.",
        "Do you always read the whole file?",
        "Should we look at {path} next?",
        "It doesn't work on my machine.",
        "Thanks, that is exactly what I wanted.",
    ),
)

HELD: Final = Templates(
    rules=(
        "Every endpoint in {path} has to return JSON, even on errors.",
        "You'll want to run {cmd} each time you edit {dir}.",
        "For this project we write commit messages in the imperative.",
        "Tests go next to the code, as in {path}.",
        "Please stay within {num} MB of memory for the importer.",
        "Pin {lib} to version 2.{num} and nothing newer.",
        "I'd like all dates in ISO 8601.",
        "One thing to bear in mind: {host} is only reachable over the VPN.",
        "Before merging, get a sign-off from {name}.",
        "Anything user-facing has to go through {name} first.",
        "Error messages need to name the file and the line.",
        "Going forward, migrations live in {dir}.",
        "Stay on Python 3.{num} for {dir}.",
        "Log levels are lower case in this code base.",
        "If {cmd} fails, stop and ask me.",
        "The public API has to stay backwards compatible.",
        "Answer in British English, please.",
        "Code in {dir} is formatted with {lib}.",
        "Wenn du {path} änderst, musst du auch {path2} anpassen.",
        "Asegúrate de ejecutar {cmd} antes de cada commit.",
        "コミットの前に必ず {cmd} を実行してください。",
        "Всегда запускай {cmd} перед коммитом.",
    ),
    prohibitions=(
        "{path} is frozen, so no edits there.",
        "I don't want to see {lib} anywhere in {dir}.",
        "Under no condition may the build talk to {host}.",
        "Please refrain from renaming anything in {dir}.",
        "Deleting rows from the {name} table is forbidden.",
        "There will be no new dependencies beyond {lib}.",
        "Whatever you do, {path} stays as it is.",
        "Skip {dir} entirely.",
        "You can't use {lib} here for licence reasons.",
        "Please leave the comments in {path} as they are.",
        "Keep your fingers out of {dir}.",
        "{lib} is banned in this repository.",
        "Tests shouldn't depend on {host} being up.",
        "I'd rather you didn't split {path} up.",
        "Commits straight to main aren't allowed.",
        "Work on a copy, {path} itself is not to be modified.",
        "Auf keinen Fall {host} aus den Tests aufrufen.",
        "Ne modifie pas {path}, s'il te plaît.",
        "{path} трогать нельзя.",
        "{path} は変更しないでください。",
    ),
    identifiers=(
        "I filed it as {id} this morning.",
        "You can reach the sandbox under {host}:8443.",
        "It broke with commit {hash}.",
        "{name}@{host} owns the account.",
        "For the record, our tenant is {id}.",
        "Use project number {big} when you talk to billing.",
        "The trace in question: {hash}.",
    ),
    numbers=(
        "Before the change it handled {big} events a minute.",
        "Last night's import had {big} records.",
        "Memory peaked at {big} MB.",
        "The contract caps us at {big} seats.",
        "It took {big} seconds on the old machine.",
    ),
    tasks=(
        "We still have to document {path}.",
        "Don't forget to drop the old column used by {path} afterwards.",
        "Once this is through, tell {name} about {path}.",
        "Open: decide what happens to {dir}.",
        "After that, clean up {path}.",
        "* [ ] replace {lib} in {dir}",
    ),
    changes=(
        (
            "The staging host is s{a}.example.net.",
            "The staging host has moved to s{b}.example.net.",
        ),
        ("Cap the batch size at {a}.", "Let's raise the batch size to {b}."),
        (
            "We support at most {a} tenants per shard.",
            "Correction: we support at most {b} tenants per shard.",
        ),
        ("Retry failed jobs {a} times.", "Change that: retry failed jobs {b} times."),
        ("Our deadline is the {a}th sprint.", "The deadline is the {b}th sprint now."),
    ),
    distractors=(
        "My wife always says I work too much.",
        "You must be joking.",
        "I should have looked there first.",
        "He never replied to my mail.",
        "Don't mind the typos.",
        "No worries, take your time.",
        "There is no rush.",
        "We only found out yesterday.",
        "I can't remember who wrote that.",
        "Is it important?",
        "The old team used {lib} for that, I think.",
        "No idea why {path} looks like that.",
        "Looks good so far.",
    ),
)

WILD: Final = Templates(
    rules=(
        "btw {name} wants {lib} in there, so go through that for everything new",
        "match whatever {path} does when you add handlers",
        "two spaces of indentation, semicolons, single quotes",
        "Treat warnings in {dir} as errors.",
        "Verify that {path} still loads after each change.",
        "the client runs Node {num} so nothing fancier than that",
        "**Imports**: external packages first, then local modules.",
        "I'm on a tiny laptop, so run only the tests in {dir} when you check.",
        "When in doubt, copy the way {path} is done.",
        "Anything that costs more than {num} dollars needs my okay.",
        "Show me the diff and wait for my go before you commit.",
        "Speak plainly with me, I am not a programmer.",
        "Preserve the order of fields in {path}.",
        "the reviewers hate long functions, so split them up",
        "Money is kept in cents, as integers, all over {dir}.",
        "Put new settings into {path}, that's where ops looks for them.",
        "{host} is production. Everything we try out goes to the sandbox.",
        "Name branches like feature/{id}.",
        "we ship to customers on windows 7, keep that in mind",
        "Tabs. Not spaces.",
    ),
    prohibitions=(
        "pls no {lib}",
        "dont touch {path} ok",
        "Nobody but {name} merges to release.",
        "whatever happens, {path} has to survive this",
        "I'd be unhappy to find {lib} among the imports of {dir}.",
        "Prefer small diffs over sweeping refactors; nothing outside {dir} is in scope.",
        "{host} is live, so look but do not write.",
        "**NEVER** use {lib} for animations.",
        "please stop adding comments that repeat the code",
        "Quit reformatting {path}.",
        "{name} would kill me if {path} changed.",
        "Work without {lib}, legal said no.",
        "The schema is set in stone.",
        "Secrets have no business in {path}.",
        "That folder, {dir}, is somebody else's.",
        "It would be a disaster if mails went out from {host}.",
        "{path} belongs to another team, so hands away from it.",
        "no emojis in commit messages",
        "i really don't like it when you rename things in {dir}",
        "mocks are a no in {dir}",
    ),
    identifiers=(
        "ticket {id} btw",
        "ssh to deploy@{host} for that",
        "the sha was {hash} iirc",
        "Invoice {id} is the one that fails.",
        "PROJECT_KEY={id}",
    ),
    numbers=(
        "it's {big} users right now",
        "{big} rows, roughly",
        "we pay {big} a year for it",
        "port {big} on the old box",
        "Last count: {big}.",
    ),
    tasks=(
        "we should come back to {path} at some point",
        "add to the list: upgrade {lib}",
        "ping me about {path} before the demo",
        "TODO {path} needs tests",
        "and then there is still the leak in {path}",
    ),
    changes=(
        ("port is {a}{a} locally", "port is {b}{b} locally, sorry"),
        ("Limit uploads to {a} MB.", "Make that {b} MB for uploads."),
        ("We target Python 3.{a}.", "We target Python 3.{b} from today on."),
        ("the budget is {a}000 euros", "they cut the budget, it is {b}000 euros now"),
        ("Wait {a} seconds between calls.", "Wait {b} seconds between calls, not {a}."),
    ),
    distractors=(
        "hm, that is strange",
        "I had the same issue two years ago and it took me a week.",
        "can't believe this worked first try",
        "the build is red again, no clue why",
        "ok cool, you always explain that nicely",
        "My boss only cares about the demo.",
        "It should be fixed now, at least on my side.",
        "We never really understood that part.",
        "There must be a typo somewhere.",
        "I don't think that is the cause.",
        "You can ignore the first half of that log.",
        "I would not have thought of that.",
        "Everything is green except one test.",
        "I have to leave in ten minutes.",
        "That was before the rewrite, so it no longer matters.",
        "It fails without a stack trace.",
    ),
)

SETS: Final[Mapping[Set, Templates]] = {"seen": SEEN, "held": HELD, "wild": WILD}

REQUESTS: Final = (
    "Can you look at {path} and tell me what it does?",
    "Please fix the failing test in {path}.",
    "What does {cmd} print now?",
    "Add a small cache to {path}.",
    "Explain how {dir} is put together.",
    "Show me where {lib} is called.",
    "Run {cmd} again and summarise the output.",
    "Write a first version of {path}.",
)
TALK: Final = (
    "Thanks!",
    "Nice, that was quick.",
    "Okay.",
    "I had a look at it over lunch and it reads well.",
    "Let me think about it for a moment.",
    "Sorry, I was away for a while.",
    "The office is loud today, so bear with my short replies.",
)
PROSE: Final = (
    "I read {path} and the shape is clear: a loader, a cache and a thin front.",
    "The function parses the header first, then walks the rows one by one.",
    "I looked at {dir}; most of it is glue around {lib}.",
    "The test passes now. The cause was a stale fixture.",
    "Here is what I found so far. The cache is filled twice on a cold start.",
    "I am going to look at {path} next, since the call comes from there.",
    "That gives us a cleaner structure, and the diff stays small.",
)
LIBS: Final = ("requests", "httpx", "loguru", "attrs", "pandas", "polars", "arrow", "click", "rich")
COMMANDS: Final = (
    "make check",
    "pytest -q",
    "npm test",
    "cargo clippy",
    "tox -e lint",
    "make docs",
)
PEOPLE: Final = ("maria", "jonas", "aiko", "pierre", "olga", "sam", "ines", "tariq")
STEMS: Final = ("loader", "cache", "router", "models", "billing", "parser", "schema", "worker")
ROOMS: Final = ("src", "lib", "pkg", "services", "app", "internal")


class _Writer:
    """Fills templates and builds messages; all chance comes from one seed."""

    def __init__(self, seed: int, *, plain: bool) -> None:
        self.dice = random.Random(seed)
        self.plain = plain
        self.messages: list[dict[str, Any]] = []
        self.planted: list[Planted] = []
        self.calls = 0

    def path(self) -> str:
        """Return a path that no other call returns (but for chance)."""
        dice = self.dice
        stem, room = dice.choice(STEMS), dice.choice(ROOMS)
        return f"{room}/{stem}_{dice.randrange(1000)}/{dice.choice(STEMS)}.py"

    def slots(self) -> dict[str, str]:
        """Return fresh values for every slot of a template."""
        dice = self.dice
        lib, lib2 = dice.sample(LIBS, 2)
        return {
            "path": self.path(),
            "path2": self.path(),
            "dir": f"{dice.choice(ROOMS)}/{dice.choice(STEMS)}_{dice.randrange(1000)}",
            "lib": f"{lib}{dice.randrange(2, 100)}",
            "lib2": lib2,
            "cmd": f"{dice.choice(COMMANDS)} {dice.choice(STEMS)}{dice.randrange(100)}",
            "num": str(dice.randrange(3, 400)),
            "big": str(dice.randrange(10_000, 999_999)),
            "id": f"{dice.choice(('OPS', 'BILL', 'ACME', 'INC'))}-{dice.randrange(1000, 99_999)}",
            "hash": f"{dice.randrange(16**9, 16**10):x}",
            "host": f"{dice.choice(STEMS)}-{dice.randrange(1000)}.example.org",
            "name": dice.choice(PEOPLE),
        }

    def fill(self, template: str) -> str:
        """Return a template with fresh values."""
        return template.format(**self.slots())

    def user(self, text: str) -> int:
        """Add a message of the user; return its position."""
        self.messages.append({"role": "user", "content": text})
        return len(self.messages) - 1

    def assistant(self, text: str) -> int:
        """Add a message of the assistant; return its position."""
        self.messages.append({"role": "assistant", "content": text})
        return len(self.messages) - 1

    def step(self, path: str | None = None) -> int:
        """Add a tool call with its result; return the position of the call."""
        self.calls += 1
        name = f"call_{self.calls}"
        tool, arguments, result = self.work(path)
        call = {"name": tool, "arguments": json.dumps(arguments)}
        calls = [{"id": name, "type": "function", "function": call}]
        self.messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        self.messages.append({"role": "tool", "tool_call_id": name, "content": result})
        return len(self.messages) - 2

    def work(self, path: str | None) -> tuple[str, dict[str, Any], str]:
        """Return a tool, its arguments and what it writes."""
        dice = self.dice
        if path is not None or dice.random() < 0.4:
            return "read_file", {"path": path or self.path()}, self.code()
        if dice.random() < 0.6:
            return "shell", {"command": dice.choice(COMMANDS)}, self.log()
        rows = [{"id": dice.randrange(10**6), "name": dice.choice(STEMS)} for _ in range(20)]
        return "search", {"query": dice.choice(STEMS)}, json.dumps(rows)

    def code(self) -> str:
        """Return source text, with comments that sound like rules."""
        dice = self.dice
        lines = [f"# never call {dice.choice(STEMS)} twice", "import os", ""]
        for _ in range(dice.randrange(8, 24)):
            name = f"{dice.choice(STEMS)}_{dice.randrange(100)}"
            lines += [f"def {name}(row):", f"    return {dice.choice(STEMS)}[{dice.randrange(99)}]"]
        return "\n".join(lines)

    def log(self) -> str:
        """Return a log, with lines that sound like rules and failures."""
        dice = self.dice
        rows = [
            f"2026-03-{dice.randrange(10, 28)} 12:{dice.randrange(10, 60)}:07 INFO "
            f"{dice.choice(STEMS)} handled {dice.randrange(10**4)} rows"
            for _ in range(dice.randrange(6, 30))
        ]
        rows.insert(2, "2026-03-11 12:10:09 WARN you must not reuse a closed connection")
        return "\n".join([*rows, f"{dice.randrange(5, 90)} passed, 0 failed"])

    def noise(self, templates: Templates) -> None:
        """Add a turn of ordinary work."""
        dice = self.dice
        words = [self.fill(dice.choice(REQUESTS))]
        if dice.random() < 0.5:
            small = self.fill(dice.choice((*TALK, *templates.distractors)))
            words.insert(0, small if small[-1] in ".!?" else small + "\n")
        if dice.random() < 0.15:
            words.append("\n```\n" + self.log() + "\n```")
        self.user(" ".join(words))
        for _ in range(0 if self.plain else dice.randrange(1, 5)):
            self.step()
        said = [self.fill(dice.choice(PROSE)) for _ in range(dice.randrange(1, 4))]
        if self.plain:
            said += [self.fill(dice.choice(PROSE)) for _ in range(6)]
        self.assistant(" ".join(said))

    def plant(self, kind: Kind, sentence: str, find: str | None = None) -> None:
        """Add a message of the user that has the sentence in it, in one of several settings."""
        dice = self.dice
        before, after = self.fill(dice.choice(TALK)), self.fill(dice.choice(REQUESTS))
        alone = sentence.startswith(("- [", "* [")) or sentence[-1] not in ".!?。"
        text = dice.choice(
            (f"{before}\n\n{sentence}\n", sentence, f"{sentence}\n\n{after}")
            if alone
            else (
                sentence,
                f"{before} {sentence} {after}",
                f"{after} {sentence}",
                f"{sentence} {before}",
                f"{before}\n\n{sentence}\n\n{after}",
            )
        )
        position = self.user(text)
        words = sentence[6:] if sentence.startswith(("- [", "* [")) else sentence
        self.planted.append(Planted(kind, find or words, position))
        self.assistant(self.fill(dice.choice(PROSE)))


def corpus(
    seed: int, *, templates: Set = "seen", turns: int = 40, plain: bool = False, each: int = 3
) -> Corpus:
    """Return a transcript of about `turns` turns of work with `each` facts of every kind in it.

    `plain` leaves the tool calls out. The same arguments give the same corpus.
    """
    writer, chosen = _Writer(seed, plain=plain), SETS[templates]
    orders = list(_orders(writer, chosen, each, paths=not plain))
    writer.messages.append({"role": "system", "content": "You are a careful engineer."})
    writer.user(writer.fill("Let us get {path} into shape, step by step."))
    slots = sorted(writer.dice.randrange(1, turns) for _ in orders)
    for turn in range(turns):
        writer.noise(chosen)
        for order in [o for o, slot in zip(orders, slots, strict=True) if slot == turn]:
            _place(writer, order)
    writer.user("Go on, please.")
    return Corpus(tuple(writer.messages), tuple(writer.planted))


def _orders(
    writer: _Writer, chosen: Templates, each: int, *, paths: bool
) -> Iterator[tuple[Kind, str, str | None]]:
    """Yield what is to be planted, in order: kind, sentence, and what to look for if not that."""
    pools: tuple[tuple[Kind, Sequence[str]], ...] = (
        ("rule", chosen.rules),
        ("prohibition", chosen.prohibitions),
        ("identifier", chosen.identifiers),
        ("number", chosen.numbers),
        ("task", chosen.tasks),
    )
    found: list[tuple[Kind, str, str | None]] = []
    for kind, pool in pools:
        for template in _some(writer.dice, pool, each):
            slots = writer.slots()
            value = next((slots[k] for k in ("id", "hash", "big") if f"{{{k}}}" in template), None)
            if value is None and kind == "identifier":
                value = slots["host"]
            find = value if kind in ("identifier", "number") else None
            found.append((kind, template.format(**slots), find))
    if paths:
        found += [("path", writer.path(), None) for _ in range(each)]
    writer.dice.shuffle(found)
    older: list[tuple[Kind, str, str | None]] = []
    newer: list[tuple[Kind, str, str | None]] = []
    for old, new in _some(writer.dice, chosen.changes, min(each, len(chosen.changes))):
        a, b = writer.dice.sample(range(11, 99), 2)
        older.append(("superseded", old.format(a=a, b=b), None))
        newer.append(("current", new.format(a=a, b=b), None))
    half = len(found) // 2
    yield from (*older, *found[:half], *newer, *found[half:])


def _some(dice: random.Random, pool: Sequence[Any], n: int) -> list[Any]:
    return dice.sample(pool, n) if n <= len(pool) else [dice.choice(pool) for _ in range(n)]


def _place(writer: _Writer, order: tuple[Kind, str, str | None]) -> None:
    kind, text, find = order
    if kind == "path":
        writer.planted.append(Planted("path", text, writer.step(text)))
        return
    writer.plant(kind, text, find)
    if kind == "superseded":
        last = writer.planted.pop()
        writer.planted.append(Planted(kind, last.text, last.position, "absent"))
