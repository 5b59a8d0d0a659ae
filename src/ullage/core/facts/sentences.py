"""Read text as sentences, and judge each one: a rule, a task, a decision, a value.

Pasted text (code fences, quotations, logs, mark-up) is data and gives no sentences. A judgement
uses only the sentence and its place, so it never changes. This module knows nothing of messages,
budgets or later use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import repeat
from typing import Final, Literal, NamedTuple

from ullage.core.facts import cues
from ullage.core.facts.grading import find_worth
from ullage.core.facts.patterns import NO_END, LatePattern, flatten, has_digit, split_at

Kind = Literal["rule", "lift", "task", "done", "decision", "failure", "value"]
Place = Literal["prose", "rules", "tasks", "open", "closed"]
"""The place of a sentence: in running text, in a list below a heading, or after a check box."""

READ_MOST: Final = 16_000
"""Characters of a message that are read: half from its head, half from its tail. A person who
pastes more than that writes before or after the paste."""

SENTENCE_MOST: Final = 500
"""Characters of a sentence; a longer one is data without a full stop."""

HEADING_MOST: Final = 100
"""Characters of a line that opens a list."""

VALUE_MOST: Final = 200
"""Characters of a line that is kept because of a value."""

VALUE_AROUND: Final = 80
"""Characters kept before and after a value in a longer sentence."""


class Profile(NamedTuple):
    """The content of a sentence, for telling whether another one replaces it.

    `values` are its numbers and names with signs in them, `words` its other meaningful words. `key`
    is the sentence with its single number masked, "" if that is not reliable. `subject` is the text
    before "is" or "=". `dropped` are names that it discards.
    """

    values: frozenset[str]
    words: frozenset[str]
    key: str
    subject: str
    dropped: frozenset[str]
    prohibits: bool
    changes: bool
    replaces: bool
    lifts: bool


class Judged(NamedTuple):
    """A sentence in its own words and its kind."""

    kind: Kind
    text: str


_FENCE: Final = LatePattern(r"\s{0,3}(?:```|~~~)")
_ITEM: Final = LatePattern(r"\s{0,12}(?:[-*+•\u2013]|\d{1,3}[.)]|\(\d{1,3}\)|[a-z][.)])\s+")
_BOX: Final = LatePattern(r"\[([ xX✓]?)\]\s+")
_DATA: Final = LatePattern(
    r"\s*>|(?: {4}|\t)|\s*\[?\d{4}-\d\d-\d\d[T ]\d|\s*\[?\d\d:\d\d:\d\d|\s*(?:INFO|WARN|WARNING"
    r"|ERROR"
    r"|DEBUG|TRACE|FATAL)\b|\s*at \S+\(|\s*Traceback|\s*File \"|\s*[$#%] \S|\+\+\+|---|@@|diff"
    r" --git"
    r"|\s*<[/!?\w]|\s*[{}\[\]();]+\s*,?$|\s*\"[^\"]{1,80}\":"
)
_CODE_END: Final = (";", "{", "}", "\\")
_SPLIT: Final = LatePattern(
    rf"[.!?。\uff01\uff1f](?:(?=[\"')\]]?\s)(?<=[.!?]){NO_END}"
    r"(?<!\betc\.)(?<!\bno\.)[\"')\]]?\s+"
    r"|(?<=[。\uff01\uff1f])\s*)"
)
"""The mark that ends a sentence, and the text between it and the next one."""


def sentences(text: str) -> Iterator[tuple[Place, str]]:
    """Yield the sentences of a text with their places, white space normalised, without data.

    An item below a forbidding heading ("Never:") gets the heading as prefix: alone it would say the
    opposite.
    """
    place: Place = "prose"
    lead = held = ""
    fenced = False
    for line in _lines(text):
        fence = _FENCE.match(line) is not None
        fenced = fenced != fence
        item = None if fenced or fence else _ITEM.match(line)
        if fenced or fence or item is not None or not line.strip():
            if held:
                yield from _split("prose", held)
                held = ""
            if item is not None:
                yield from _split_item(place, lead, line[item.end() :])
        elif not line.rstrip().endswith(_CODE_END) and not _DATA.match(line):
            heading = _heading(line)
            if heading is not None or not _goes_on(held, line):
                yield from _split("prose", held)
                held = ""
            place, lead = heading or ("prose", "")
            if heading is None:
                held = f"{held} {line}" if held else line
            else:
                yield from _split("prose", _find_before(line))
    yield from _split("prose", held)


def _lines(text: str) -> list[str]:
    """Return the lines to read: for a very long text, its head and its tail."""
    if len(text) <= READ_MOST:
        return text.splitlines()
    half = READ_MOST // 2
    head, tail = text[:half], text[-half:]
    cut = max(head.rfind("\n"), head.rfind(". "))
    start = tail.find("\n")
    return [*head[: cut + 1].splitlines(), "", *(tail[start:] if start >= 0 else "").splitlines()]


def _goes_on(held: str, line: str) -> bool:
    """Tell whether a line continues a sentence that was wrapped."""
    if not held or held.rstrip()[-1] in ".!?:;。\uff01\uff1f" or len(held) < 50:
        return False
    return line.lstrip()[0].islower() and len(held) < SENTENCE_MOST


def _heading(line: str) -> tuple[Place, str] | None:
    """Return the kind of list below this line and the prefix of its items, None for prose."""
    stripped = line.strip().strip("#*_ ")
    if len(stripped) > HEADING_MOST or not (
        stripped.endswith((":", "\uff1a")) or line.startswith("#")
    ):
        return None
    lower = normalise_sentence(stripped)
    if cues.TASK_HEADING.search(lower):
        return "tasks", ""
    if cues.FORBIDDING_HEADING.search(lower):
        return "rules", stripped.rstrip(":\uff1a") + ": "
    rules = cues.RULE_HEADING.search(lower) or find_worth(lower) > 0
    return ("rules", "") if rules else ("prose", "")


def _find_before(heading: str) -> str:
    """Return the sentences in a line before the one that opens a list."""
    *before, _ = split_at(_SPLIT, heading) if not heading.startswith("#") else ("",)
    return " ".join(before)


def _split_item(place: Place, lead: str, item: str) -> Iterator[tuple[Place, str]]:
    box = _BOX.match(item)
    if box is None:
        yield from _split(place, lead + item)
        return
    text = flatten(item[box.end() :])
    if 0 < len(text) <= SENTENCE_MOST:
        yield ("open" if box[1] in ("", " ") else "closed"), text


def _split(place: Place, text: str) -> Iterator[tuple[Place, str]]:
    for found in split_at(_SPLIT, text) if text else ():
        if len(found) <= SENTENCE_MOST:
            sentence = flatten(found)
            if len(sentence) > 1:
                yield place, sentence


def normalise_sentence(sentence: str) -> str:
    """Return the form in which cues are searched."""
    return sentence.lower().replace("\u2019", "'").replace("**", "").replace("__", "")


KNOWN: Final = 8_192
"""Sentences whose grade is cached. A block's sentences are graded again in every compaction, with
hundreds of patterns for each."""


@lru_cache(maxsize=KNOWN)
def grade(sentence: str) -> int:
    """Return the evidence for a rule in a sentence: 0 for no evidence, from 4 on it is clear."""
    return find_worth(normalise_sentence(sentence))


@lru_cache(maxsize=KNOWN)
def grade_data(line: str) -> int:
    """Return the same for a line that nobody typed: most have no evidence."""
    return find_worth(normalise_sentence(line), data=True)


@lru_cache(maxsize=KNOWN)
def rule(place: Place, sentence: str) -> bool:
    """Tell whether a sentence of the user states a rule: something that outlasts the moment."""
    sentence = drop_speech(sentence)
    lower = normalise_sentence(sentence)
    asks = lower.endswith(("?", "\uff1f")) or cues.ASKS.match(lower) is not None
    if asks and not cues.PLEADS.search(lower):
        return False
    worth = grade(sentence)
    if place == "rules":
        worth += 2
    if worth >= 1 and _NAMED.search(sentence):
        worth += 1
    return worth >= cues.STATES_RULE


def drop_speech(sentence: str) -> str:
    """Return a sentence without quoted speech in it, also if the speech is cut off.

    Without a verb of saying, people quote text of their own: a line for a file, a name.
    """
    if _QUOTE.search(sentence) is None:
        return sentence
    bare = _SPEECH.sub(" ", sentence)
    return bare if _SAYS.search(bare.lower()) else sentence


_SAYS: Final = LatePattern(
    r"\b(?:says?|said|wrote|writes|written|tells?|told|claims?|answered|replied|posted|schreibt"
    r"|schrieb|sagte?|meinte?|behauptet|dit|écrit|raconte|dice|dijo|escrib\w+|scrive|ha scritto"
    r"|disse|diz|napisał\w*|powiedzia\w*|пишет|написал\w*|сказал\w*|говорит|قال\w*|كتب\w*)\b"
    r"|写道|说|表示|書[いき]|言[いっ]|と述べ|말했|썼|적었|ने (?:कहा|लिखा)"
)
"""Verbs of saying."""


_QUOTE: Final = LatePattern(r"[\"\u201c\u201d\u201e\u00ab\u00bb\u300c-\u300f]")
_SPEECH: Final = LatePattern(
    r"\"[^\"]{20,}(?:\"|$)|\u00bb[^\u00ab\u00bb]{6,}\u00ab"
    r"|[\u201c\u201e\u00ab\u300c\u300e][^\u201c-\u201e\u00ab\u00bb\u300c-\u300f]{6,}"
    r"(?:[\u201c\u201d\u00bb\u300d\u300f]|$)|^[^\u201c-\u201e\u300c-\u300f]*[\u201d\u300d\u300f]"
)
"""Speech in quotation marks: one or two words are a name. If one mark is missing, it is in another
sentence. By Unicode: U+201C to U+201E, U+00AB, U+00BB, U+300C to U+300F."""

_NAMED: Final = LatePattern(r"\w[/._-]\w|\d|`")
_VALUE: Final = (
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{4,27}"
    r"|(?=[a-f]{0,39}\d)(?=\d{0,39}[a-f])[0-9a-f]{7,40}"
    r"|[A-Z][A-Z0-9]{1,9}-\d{1,9}|\d{1,3}(?:\.\d{1,3}){3}(?::\d{2,5})?"
    r"|[a-z0-9][a-z0-9-]{0,62}(?:\.[a-z0-9-]{1,62}){1,4}:\d{2,5}|v?\d{1,6}\.\d{1,6}\.\d{1,6}"
    r"|\d{4}-\d\d-\d\d"
)
_DOMAIN: Final = (
    r"(?:[a-z0-9-]{1,62}\.){1,4}"
    r"(?:com|org|net|io|dev|local|internal|cloud|ai|app|de|eu|example|test)"
)
STRONG: Final = LatePattern(
    r"\b(?:https?://[^\s<>\"']{4,160}|[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{2,63}"
    rf"|{_VALUE}|[A-Za-z_][\w.]{{1,40}}=[\w./:@+-]{{1,80}}|{_DOMAIN})\b"
)
_PLAIN: Final = LatePattern(rf"\b(?:{_VALUE}|{_DOMAIN})\b")
"""The matches of `STRONG` in text without `@`, `=` and `://`."""

HASH: Final = LatePattern(r"\b(?=[a-f]{0,39}\d)(?=\d{0,39}[a-f])[0-9a-f]{7,40}\b")
_DIGIT: Final = LatePattern(r"\d")
DOTTED: Final = LatePattern(
    r"\b(?:(?=[a-f]{0,39}\d)(?=\d{0,39}[a-f])[0-9a-f]{7,40}|\d{1,3}(?:\.\d{1,3}){3}"
    rf"|v?\d{{1,6}}\.\d{{1,6}}\.\d{{1,6}}|{_DOMAIN})\b"
)
"""The matches of `STRONG` in text without the other signs."""

_OTHER_SIGN: Final = LatePattern(r"[@=:-]")
SIGNED: Final = LatePattern(r"[@=.:-](?:(?<=[@=])|(?<=[.-])[\w-]|(?<=:)//)")
"""One of these signs is in every match of `STRONG` except a `HASH`, which has a digit."""

_SIGNS: Final = ("@", "=", "://")

_BARE: Final = LatePattern(
    r"[.-](?:(?<=-)[a-fA-F]{4}-"
    r"|(?<=\.)(?:com|org|net|io|dev|local|internal|cloud|ai|app|de|eu|example|test)\b)"
)
"""One of these is in every match of `STRONG` without a digit, `@`, `=` and `://`."""

_NUMBER: Final = LatePattern(r"(?<![\w/.#-])[$€£#]?\d[\d,._]{0,18}\d%?(?![\w/]|-\w)")
_LARGE: Final = LatePattern(r"(?<![\w/.#-])[$€£#]?\d[\d,._]{1,18}\d%?(?![\w/]|-\w)")


def may_have_value(text: str) -> bool:
    """Tell whether a sentence in a model's text may be kept because of a value."""
    if has_digit(text) or any(map(text.__contains__, _SIGNS)):
        return True
    return _BARE.search(text) is not None


def judge(place: Place, sentence: str, *, user: bool, valued: bool = True) -> Judged | None:
    """Return the judgement of a sentence, or None if it need not outlive its message.

    `valued` is False for a model's sentence in a text without a value.
    """
    if place == "closed":
        return Judged("done", sentence)
    lower = normalise_sentence(sentence)
    done = cues.DONE.match(lower)
    if done is not None:
        return Judged("done", sentence[-len(done[1]) :])
    asked = lower.endswith(("?", "\uff1f"))
    turns = not asked and cues.TURNS.search(lower) is not None
    if user:
        found = _of_user(place, sentence, lower, asked=asked, turns=turns)
        if found is not None:
            return found
    if turns:
        if cues.FAILS.search(lower):
            return Judged("failure", _short(sentence))
        if cues.DECIDES.search(lower):
            return Judged("decision", sentence)
    return _value(sentence, lower, user=user, asked=asked) if valued else None


@lru_cache(maxsize=KNOWN)
def is_plain_value(sentence: str) -> bool:
    """Tell whether a user's sentence is kept because of a value, and is not a rule or choice."""
    judged = judge("prose", sentence, user=True)
    return judged is not None and judged.kind == "value"


@lru_cache(maxsize=KNOWN)
def is_telling(sentence: str) -> bool:
    """Tell whether a sentence with cues of a rule rather tells a story.

    Such sentences report the past, say what others always or never do, or have only a number and
    one weak cue. They are kept like a rule, but not listed as one.
    """
    if not rule("prose", sentence):
        return False
    if grade(sentence) < cues.STATES_RULE:
        return True
    lower = sentence.lower()
    rest = _TELLS.sub(" ", lower)
    return rest != lower and not rule("prose", rest)


_TELLS: Final = LatePattern(
    r"\bhad to\b|\bnever (?:have|had|has) (?:i|we|you|he|she|it|they)\b"
    r"|\b(?:was|were|had been) (?:\w+ )?(?:never|always)\b|\b(?:he|she|they) (?:never|always)\b"
    r"|\b(?:ich|wir|er|sie) musste[nt]?\b|\bwar(?:en)? (?:\w+ ){0,2}(?:nie|immer)\b"
    r"|\b(?:il|elle|ils|elles) (?:ne |n')?(?!faut|doi|dev|peu|est)\w+ (?:jamais|toujours)\b"
    r"|\bn'avai\w+ jamais\b"
    r"|\b(?:tuvo|tuve|tuvieron|tuvimos) que\b|\b\u043f\u0440\u0438\u0448\u043b\u043e\u0441\u044c\b"
)
"""Words of stories: the past, and what others do."""


def _of_user(place: Place, sentence: str, lower: str, *, asked: bool, turns: bool) -> Judged | None:
    if place in ("open", "tasks") or (not asked and _is_task(lower, turns=turns)):
        return Judged("task", sentence)
    if turns and cues.LIFTS.search(lower) and not cues.PROHIBITS.search(lower):
        return Judged("lift", sentence)
    return Judged("rule", sentence) if rule(place, sentence) else None


def _is_task(lower: str, *, turns: bool) -> bool:
    if cues.TASK_OPENS.match(lower) is not None:
        return True
    return turns and cues.TASK.search(lower) is not None


def _value(sentence: str, lower: str, *, user: bool, asked: bool) -> Judged | None:
    """Return a line for the identifier or number in a sentence, or None without one."""
    digit = has_digit(lower)
    found = find_strong(sentence, digit=digit)
    if found is None and not asked:
        found = (_NUMBER if user else _LARGE).search(sentence) if digit else None
        if found is None and user:
            named = any(map(lower.__contains__, cues.NAMING))
            found = cues.NAMES.search(lower) if named else None
            if found is None and digit and cues.CHANGES.search(lower):
                found = _DIGIT.search(lower)
    if found is None:
        return None
    if len(sentence) <= VALUE_MOST:
        return Judged("value", sentence)
    start = max(0, found.start() - VALUE_AROUND)
    return Judged("value", sentence[start : found.end() + VALUE_AROUND].strip())


def find_strong(sentence: str, *, digit: bool) -> re.Match[str] | None:
    """Return the match of `STRONG`; most sentences have none of its signs."""
    plain = not any(map(sentence.__contains__, _SIGNS))
    if plain and not digit:
        if "-" not in sentence and sentence.find(".", 0, -1) < 0:
            return None
        return _PLAIN.search(sentence) if _BARE.search(sentence) else None
    if SIGNED.search(sentence):
        strong = _PLAIN if plain else STRONG
        return (strong if _OTHER_SIGN.search(sentence) else DOTTED).search(sentence)
    return HASH.search(sentence) if digit else None


def _short(sentence: str) -> str:
    if len(sentence) <= VALUE_MOST:
        return sentence
    return sentence[:VALUE_MOST].rpartition(" ")[0] or sentence[:VALUE_MOST]


_TOKEN: Final = LatePattern(r"[^\s,;!?\"'()\[\]{}<>«»“”`。\uff0c\uff01\uff1f、]+")
_IS_NUMBER: Final = LatePattern(r"[v$€£#]?\d[\d.,:_]*(?:[a-z%]{0,3})?")
_IS_NAMED: Final = LatePattern(r"\d|[/_@.\\=]")
_DROPS: Final = LatePattern(
    r"\b(?:not|instead of|rather than|from|no longer|replaces?|replacing|was) "
    r"(?:(?:at|on|in|the|port|version) )?(\S+)"
)
"""Names that a sentence discards."""

_DROPPING: Final = ("not ", "instead of ", "rather than ", "from ", "no longer ", "replac", "was ")
"""One of these is in every match of `_DROPS`."""

_DIGITS: Final = LatePattern(r"\d+")
_MODAL: Final = frozenset(
    ("must", "should", "is", "are", "has", "have", "stays", "stay", "needs", "need", "was", "may")
)
_NONE: Final = frozenset[str]()
_COPULA: Final = frozenset(("is", "are", "=", "was", "lives", "heißt", "est", "es"))


@lru_cache(maxsize=2_048)  # twice the fact lines searched for a later one
def profile(sentence: str) -> Profile:
    """Return the content of a sentence; equal sentences give equal profiles."""
    lower = normalise_sentence(sentence)
    tokens = list(filter(None, map(str.strip, _TOKEN.findall(lower), repeat(".:-*_"))))
    named = [t for t in tokens if not t.isalpha() and _IS_NAMED.search(t)]
    numbers = list(filter(_IS_NUMBER.fullmatch, named))
    prohibits = rules_out(lower)
    values = frozenset(named) if named else _NONE
    plain = [t for t in tokens if len(t) > 1 and t not in values and t not in cues.STOP]
    changes = cues.CHANGES.search(lower) is not None
    return Profile(
        values=values,
        words=frozenset([_stem(t) if t[-1] in "gds" else t for t in plain]),
        key="" if prohibits else _key(tokens, numbers, plain),
        subject=_subject(tokens),
        dropped=_find_dropped(lower) if any(map(lower.__contains__, _DROPPING)) else _NONE,
        prohibits=prohibits,
        changes=changes,
        replaces=changes and cues.REPLACES.search(lower) is not None,
        lifts=cues.LIFTS.search(lower) is not None,
    )


def rules_out(lower: str) -> bool:
    """Tell whether a sentence in small letters forbids something."""
    if cues.PROHIBITS.search(lower):
        return True
    return any(map(lower.__contains__, cues.FORBIDDING)) and cues.FORBIDS.search(lower) is not None


def _find_dropped(lower: str) -> frozenset[str]:
    return frozenset(t for m in _DROPS.findall(lower) if (t := m.strip(".:,;!?)"))) or _NONE


def _key(tokens: list[str], numbers: list[str], plain: list[str]) -> str:
    """Return the sentence with its single number masked, "" if the number has no safe place.

    A number before the verb distinguishes things ("port 22 must stay open"); one after it is a
    property of them.
    """
    if len(numbers) != 1 or not plain:
        return ""
    at = tokens.index(numbers[0])
    if any(t in _MODAL for t in tokens[at:]):
        return ""
    masked = " ".join("#" if t == numbers[0] else t for t in tokens)
    bare = cues.TURNED_UNSPACED.sub("", cues.TURNED.sub("", masked))
    return " ".join(t for t in bare.split() if t not in cues.STOP)


def _subject(tokens: list[str]) -> str:
    """Return the text before the verb of "X is Y", "" if that is not a short name."""
    if _COPULA.isdisjoint(tokens[:8]):
        return ""
    at = next(i for i, t in enumerate(tokens) if t in _COPULA)
    words = [t for t in tokens[:at] if t not in cues.STOP]
    return " ".join(words) if words and len(tokens) - at <= 6 else ""


def _stem(word: str) -> str:
    """Return a word in g, d or s without its usual endings: "deploys" becomes "deploy"."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def supersedes(new: Profile, old: Profile) -> bool:
    """Tell whether a later sentence replaces an older one; if unsure, it does not.

    Without a word of change, it must be the same sentence with another number, or another predicate
    of the same subject. With one, sentences on the same subject replace each other.
    """
    if new.lifts and not new.prohibits:
        return _is_lifted(new, old)
    if new.key and new.key == old.key:
        return True
    if new.subject and new.subject == old.subject and not (new.prohibits or old.prohibits):
        return True
    if old.values and old.values <= new.dropped and new.values - old.values:
        return not old.prohibits and 2 * len(new.words & old.words) >= len(old.words)
    if not new.changes or new.prohibits != old.prohibits or new.words.isdisjoint(old.words):
        return False
    return _is_revised(new, old)


def _is_revised(new: Profile, old: Profile) -> bool:
    shared = len(new.words & old.words)
    mine, yours = new.values - old.values, old.values - new.values
    if len(mine) == 1 and len(yours) == 1:
        return _is_exchanged(new, old, min(mine), min(yours))
    gone, come = old.words - new.words, new.words - old.words
    alone = new.replaces and not mine and not yours and len(gone) == len(come) == 1
    return alone and shared >= (2 if old.prohibits else 1)


def _is_exchanged(new: Profile, old: Profile, mine: str, yours: str) -> bool:
    """Tell whether the new sentence replaces the old one's value.

    Numbers of one form do if the sentences share two thirds of their words. Names do only if the
    change is clear. A number and a name are about different things.
    """
    shared = len(new.words & old.words)
    least, most = sorted((len(new.words), len(old.words)))
    mask, other = _DIGITS.sub("#", mine), _DIGITS.sub("#", yours)
    if mask == other:
        return (mask[0] in "v$€£#" or new.replaces) and 3 * shared >= 2 * least
    if "#" in (mask, other):
        return False
    return new.replaces and shared >= 2 and 2 * shared >= most


def _is_lifted(new: Profile, old: Profile) -> bool:
    if old.lifts and not old.prohibits:
        return False
    if new.values & old.values:
        return old.values <= new.values
    shared = len(new.words & old.words)
    return not old.values and shared > 0 and 5 * shared >= 3 * len(old.words)


def same_task(done: Profile, task: Profile) -> bool:
    """Tell whether a finished item is this task: it has most of its words and all its values."""
    if not task.values <= done.values:
        return False
    shared = len(done.words & task.words)
    return bool(task.values or shared) and 3 * shared >= 2 * len(task.words)
