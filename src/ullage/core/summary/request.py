"""Let a model write a summary that may replace old messages, or say why it may not.

`write` is a generator without I/O: it yields requests for a summariser, as many at once as can run
in parallel, and receives the answers. All dropped messages go out as quoted data, in pieces that
fit the summariser's own window. The answers are read leniently (`record`), checked against their
source (`faithful`), and joined. The requests do not ask for rules, preferences and exact
identifiers: code carries them (`facts`).

This module knows no policy, no model and no position in a history.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from ullage.core.messages.thoughts import drop_thoughts
from ullage.core.summary import faithful
from ullage.core.summary.headings import CORE, SECTIONS
from ullage.core.summary.pieces import (
    Scrap,
    by_rule,
    count_source_characters,
    cut,
    data,
    line,
    scraps,
)
from ullage.core.summary.prompt import (
    AGAIN,
    HINTS,
    LISTED,
    PIECE,
    PROMPT,
    REDUCE,
    SYSTEM,
    UPDATE,
    WHOLE,
)
from ullage.core.summary.question import Answer, SummaryRequest
from ullage.core.summary.record import Line, cut_record, parse, render
from ullage.core.summary.salient import Salient, choose_salient, find_lost, quote_salient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ullage.core.dialects.usage import Usage
    from ullage.core.facts.extract import Facts
    from ullage.core.messages.transcript import Message
    from ullage.core.summary.faithful import Source

UNKNOWN_WINDOW: Final = 8_192
"""Tokens that a request may take if the summariser's window is unknown. Nearly every model and
local server that can summarise has at least this (among those measured, only Ollama allocates less
by default, 4,096 with little memory; ullage asks it for its window)."""

SAFETY: Final = 0.75
"""The usable share of the window: the summariser's vocabulary may differ from the one used to
count, and its chat template adds tokens."""

LEAST_ROOM: Final = 48
"""With fewer tokens for quoted text no request is made: it would be all frame."""


@dataclass(frozen=True, slots=True)
class Written:
    """A summary that may stand in history (`prose`), or the reason why it is missing (`flaw`).

    `levels` has the number of pieces of each level, `seen` the share of the dropped text in some
    request. `removed` has the lines left out, each after its reason. `by_rule` has the pieces
    without a good answer, which code described instead. `listed` is the number of sentences shown
    first, `lost` the number of them missing in the prose.
    """

    prose: str | None
    flaw: str | None
    levels: tuple[int, ...]
    seen: float
    removed: tuple[str, ...]
    usage: Usage | None
    requests: int
    by_rule: tuple[str, ...] = ()
    listed: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """The input of a summary: `messages` are to be replaced, code carries the `facts`.

    `tokens` is the budget of the prose. `window` is the limit for the summariser's input and answer
    together (None: unknown, see `UNKNOWN_WINDOW`). `earlier` is the prose of the previous summary:
    it is updated, not summarised. `salient` are sentences of the messages by their positions: the
    best are shown first.
    """

    messages: Sequence[Message]
    facts: Facts
    tokens: int
    window: int | None
    count: Callable[[str], int]
    earlier: str = ""
    salient: Sequence[Salient] = ()


def make_unasked(flaw: str) -> Written:
    """Return the result if no summariser was asked, with the reason."""
    return Written(None, flaw, (), 0.0, (), None, 0)


Asking = Generator[tuple[SummaryRequest, ...], "Sequence[Answer | None]", "Written"]

LEAST_KEPT: Final = 0.3
"""The record made of several records must keep this share of their words. A small model
(Qwen2.5-Coder 0.5B) returned the last of four, a sixth of the words."""

NAMED: Final[Mapping[str, str]] = MappingProxyType({"summary_long": "summary_inflated"})
"""Public names of flaws that only the second prompt distinguishes."""

WORDS: Final = 0.6
"""Words requested per token of budget: models exceed the requested length."""


def write(job: Job) -> Asking:
    """Ask a summariser for a record of `job.messages`; return it checked, or the flaw.

    Yields requests that may run in parallel; expects one answer each, None for a failed one. A
    request has one second chance, which names the problem. It ends after at most 2 + 2 log2(pieces)
    rounds, whatever the answers are.
    """
    desk = _desk(job)
    if not desk.scraps:
        return desk.make_written(None, "summary_empty")
    orders = _first(desk)
    if not orders:
        return desk.make_written(None, "summariser_failed")
    desk.levels.append(len(orders))
    found = yield from _ask(desk, orders)
    if all(isinstance(record, str) for record in found):
        return desk.make_written(None, str(found[0]))
    records = [_make_record(desk, o, r) for o, r in zip(orders, found, strict=True)]
    if desk.earlier and not desk.updating:
        records.insert(0, _Record(list(desk.earlier), frozenset()))
    level = 0
    while len(records) > 1:
        merged = _merge_records(records)
        if job.count(render(merged.lines)) <= job.tokens:
            records = [merged]  # everything fits: a model could only lose something
            break
        level += 1
        records = yield from _reduce(desk, records, level)
    return _finish_record(desk, records[0].lines)


@dataclass(slots=True)
class _Desk:
    """The state of one job: its inputs and its results so far."""

    job: Job
    scraps: list[Scrap]
    source: Source
    earlier: tuple[Line, ...]
    elsewhere: str
    bound: int
    answer: int
    size: int
    updating: bool = False
    shown: int = 0
    requests: int = 0
    usage: Usage | None = None
    levels: list[int] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    by_rule: list[str] = field(default_factory=list)
    listed: set[Salient] = field(default_factory=set)

    def make_written(self, prose: str | None, flaw: str | None) -> Written:
        total = sum(len(scrap.text) for scrap in self.scraps)
        return Written(
            prose,
            flaw,
            tuple(self.levels),
            self.shown / total if total else 1.0,
            tuple(self.removed),
            self.usage,
            self.requests,
            tuple(self.by_rule),
            len(self.listed),
            len(find_lost(self.listed, prose or "")),
        )

    @property
    def words(self) -> int:
        return max(int(self.answer * WORDS), 1)

    @property
    def most_listed(self) -> int:
        """The tokens that salient sentences may take before the rest of a prompt."""
        return min(self.bound // LISTED_SHARE, self.answer) if self.job.salient else 0

    def room(self, frame: str) -> int:
        """Return the tokens left for quoted text in a prompt of this frame."""
        longest = max((self.again(flaw) for flaw in AGAIN), key=len)
        used = sum(map(self.job.count, (SYSTEM, frame, longest)))
        return self.bound - self.answer - used - _SEAMS

    def list_salient(self, messages: frozenset[int], prompt: str) -> str:
        """Return a prompt with the best sentences of these messages before it, as many as fit."""
        tokens = min(self.most_listed, self.room(prompt) - self.job.count(LISTED))
        chosen = choose_salient(self.job.salient, messages, tokens, self.job.count)
        made = LISTED.format(quoted=quote_salient(chosen)) + prompt
        if not chosen or not self.holds(made):
            return prompt
        self.listed.update(chosen)
        return made

    def again(self, flaw: str) -> str:
        return AGAIN[flaw].format(less=max(self.words // 2, 1))

    def holds(self, prompt: str) -> bool:
        """Tell whether a request with this prompt, also its second try, stays within the bound."""
        longest = max((self.again(flaw) for flaw in AGAIN), key=len)
        count = self.job.count
        return count(SYSTEM) + count(f"{prompt}\n{longest}") + self.answer <= self.bound


_SEAMS: Final = 12
"""Tokens for the seams between the counted parts of a request."""

LISTED_SHARE: Final = 12
"""Sentences before the messages may take at most a twelfth of a request, and at most the size of
the answer: an answer cannot keep more than it can say."""

MORE_PIECES: Final = 1.1
"""Factor for the number of requests that the sentences may cost: with few pieces not one more."""


def _desk(job: Job) -> _Desk:
    facts = job.facts
    held = list(scraps(job.messages))
    told = [scrap.text for scrap in held if scrap.label == "tool output"]
    spoken = [scrap.text for scrap in held if scrap.label != "tool output"]
    bound = int((job.window or UNKNOWN_WINDOW) * SAFETY)
    return _Desk(
        job,
        held,
        faithful.source(
            [job.earlier, *_strings(facts), *spoken], told, [*facts.constraints, *facts.decisions]
        ),
        tuple(parse(job.earlier)),
        _elsewhere(_list_rules(job), bound // 16, job.count),
        bound,
        max(min(job.tokens, bound // 4), 1),
        job.count(job.earlier) + sum(job.count(scrap.text) for scrap in held),
    )


def _strings(facts: Facts) -> Iterator[str]:
    for each in fields(facts):
        yield from getattr(facts, each.name)


def _list_rules(job: Job) -> list[str]:
    """Return the constraints that are in none of the sentences to keep."""
    salient = "\n".join(each.text for each in job.salient)
    return [text for text in job.facts.constraints if text not in salient]


def _elsewhere(constraints: Sequence[str], tokens: int, count: Callable[[str], int]) -> str:
    """Return the note that rules are kept elsewhere, with as many of them as fit, newest first."""
    lines: list[str] = []
    for text in reversed(constraints):
        rule = f"- {data(text)}"
        tokens -= count(rule) + 1
        if tokens < 0:
            break
        lines.insert(0, rule)
    if not lines:
        return ""
    return (
        "Rules of the user, recorded elsewhere, do not restate them:\n" + "\n".join(lines) + "\n\n"
    )


# --- what is asked --------------------------------------------------------------------------------


class _Record(NamedTuple):
    """The lines made from some messages."""

    lines: list[Line]
    messages: frozenset[int]


class _Order(NamedTuple):
    """A request, the lines that code writes without its answer, and its messages.

    The answer must be smaller than `under` tokens. With `keep` it must hold some of the words of
    the spare lines.
    """

    request: SummaryRequest
    spare: list[Line]
    messages: frozenset[int]
    under: int | None = None
    keep: bool = False


def _first(desk: _Desk) -> list[_Order]:
    """Return the requests of the first level; empty if the window has no room for any."""
    before = ""
    if desk.earlier:
        before = f"<record>\n{render(desk.earlier)}\n</record>\n\n"
    elif desk.job.earlier.strip():
        desk.scraps.insert(0, Scrap("earlier record", desk.job.earlier, -1))
    order = _order(desk, desk.scraps, before, UPDATE if before else WHOLE, (1, 1))
    if desk.holds(order.request.prompt):
        desk.updating = bool(before)
        return [order._replace(under=desk.size)]
    return _in_pieces(desk)


def _in_pieces(desk: _Desk) -> list[_Order]:
    room = desk.room(_frame(desk, "", PIECE.format(piece=999, pieces=999)))
    while room >= LEAST_ROOM:
        pieces = _cut_pieces(desk, room)
        desk.listed.clear()
        orders = [
            _order(desk, piece, "", PIECE.format(piece=n, pieces=len(pieces)), (n, len(pieces)))
            for n, piece in enumerate(pieces, 1)
        ]
        if all(desk.holds(order.request.prompt) for order in orders):
            return orders
        room = room * 3 // 4  # the count of a whole may exceed the sum of its parts
    return []


def _cut_pieces(desk: _Desk, room: int) -> list[list[Scrap]]:
    """Return the pieces, with room for sentences before each if that costs almost nothing."""
    pieces = cut(desk.scraps, room, desk.job.count)
    if not desk.most_listed:
        return pieces
    spare = desk.most_listed + desk.job.count(LISTED)
    roomy = cut(desk.scraps, max(room - spare, 1), desk.job.count)
    return roomy if len(roomy) <= len(pieces) * MORE_PIECES else pieces


def _frame(desk: _Desk, before: str, task: str, quoted: str = "") -> str:
    return PROMPT.format(
        before=before,
        quoted=quoted,
        elsewhere=desk.elsewhere,
        task=task,
        words=desk.words,
    )


def _order(
    desk: _Desk, held: Sequence[Scrap], before: str, task: str, place: tuple[int, int]
) -> _Order:
    quoted = "\n".join(map(line, held))
    messages = frozenset(scrap.message for scrap in held if scrap.message >= 0)
    prompt = desk.list_salient(messages, _frame(desk, before, task, quoted))
    piece, pieces = place
    request = SummaryRequest(
        SYSTEM, prompt, quoted, desk.answer, len(messages), piece=piece, pieces=pieces
    )
    return _Order(request, by_rule(held), messages)


# --- what is made of the answers ------------------------------------------------------------------

Found = list["list[Line] | str"]
"""For each request its checked lines, or the flaw that all attempts had."""


def _ask(
    desk: _Desk, orders: Sequence[_Order]
) -> Generator[tuple[SummaryRequest, ...], Sequence[Answer | None], Found]:
    """Ask for all records of one level, and once more for each bad answer.

    If every request failed, the summariser is down and is not asked again.
    """
    answers = yield from _round(desk, [order.request for order in orders])
    found = [_judge_answer(desk, o, a, last=False) for o, a in zip(orders, answers, strict=True)]
    bad = [i for i, judged in enumerate(found) if judged.flaw]
    if bad and any(answer is not None for answer in answers):
        again = [_again(desk, orders[i].request, str(found[i].flaw)) for i in bad]
        answers = yield from _round(desk, again)
        for i, answer in zip(bad, answers, strict=True):
            second = _judge_answer(desk, orders[i], answer, last=True)
            if second.flaw is None or not found[i].lines:
                found[i] = second
    for judged in found:
        desk.removed += judged.removed if judged.lines else ()
    return [judged.lines or NAMED.get(str(judged.flaw), str(judged.flaw)) for judged in found]


def _round(
    desk: _Desk, requests: list[SummaryRequest]
) -> Generator[tuple[SummaryRequest, ...], Sequence[Answer | None], Sequence[Answer | None]]:
    desk.requests += len(requests)
    if requests[0].level == 0 and requests[0].attempt == 1:
        desk.shown = sum(count_source_characters(request.quoted) for request in requests)
    answers = yield tuple(requests)
    for answer in answers:
        if answer is not None and answer.usage is not None:
            desk.usage = answer.usage if desk.usage is None else desk.usage + answer.usage
    return answers


def _again(desk: _Desk, request: SummaryRequest, flaw: str) -> SummaryRequest:
    prompt = f"{request.prompt}\n{desk.again(flaw)}".rstrip()
    return replace(request, prompt=prompt, attempt=2)


class _Judged(NamedTuple):
    """The usable lines of an answer; a flaw asks for another answer.

    Lines with a flaw are only too many: they are used if no better answer comes.
    """

    lines: list[Line]
    flaw: str | None
    removed: list[str]


def _judge_answer(desk: _Desk, order: _Order, answer: Answer | None, *, last: bool) -> _Judged:
    if answer is None:
        return _Judged([], "summariser_failed", [])
    if answer.cut:
        return _Judged([], "summary_cut", [])
    said = drop_thoughts(answer.text)
    told = [row for row in parse(said) if not any(h in row.text.casefold() for h in HINTS)]
    lines, removed = faithful.check_lines(told, desk.source)
    if not any(row.section in CORE for row in lines):
        flaw = "summary_malformed" if said.strip() else "summary_empty"
        return _Judged([], flaw, removed)
    size = desk.job.count(render(lines))
    if size > desk.answer:
        lines, left_out = _within(lines, desk.answer, desk.job.count)
        removed += left_out
        return _Judged(lines, None if last and lines else "summary_long", removed)
    lossy = order.keep and _share(lines, order.spare) < LEAST_KEPT
    inflated = order.under is not None and size >= order.under
    if lossy or inflated:
        return _Judged([], "summary_lossy" if lossy else "summary_inflated", removed)
    return _Judged(lines, None, removed)


def _share(lines: Sequence[Line], of: Sequence[Line]) -> float:
    """Return the share of the words of some lines that others have too."""
    wanted = faithful.stems_of(render(of))
    return len(wanted & faithful.stems_of(render(lines))) / max(len(wanted), 1)


def _within(
    lines: Sequence[Line], tokens: int, count: Callable[[str], int]
) -> tuple[list[Line], list[str]]:
    """Return the lines that fit, and the others with the reason before each."""
    kept, out = cut_record(lines, tokens, count)
    return kept, [f"over the budget: {row.text}" for row in out]


def _make_record(desk: _Desk, order: _Order, found: list[Line] | str) -> _Record:
    """Return the record of a piece, written by rule if no answer was good enough."""
    if not isinstance(found, str):
        return _Record(found, order.messages)
    request = order.request
    desk.by_rule.append(
        f"level {request.level}, piece {request.piece} of {request.pieces}: {found}"
    )
    return _Record(order.spare, order.messages)


def _reduce(
    desk: _Desk, records: Sequence[_Record], level: int
) -> Generator[tuple[SummaryRequest, ...], Sequence[Answer | None], list[_Record]]:
    """Return fewer records: those that fit together into one request become one."""
    groups = list(_group_records(desk, records))
    orders: list[_Order] = []
    many = sum(len(group) > 1 for group in groups)
    for group in groups:
        if len(group) > 1:
            orders.append(_joining(desk, group, level, (len(orders) + 1, many)))
    askable = [order for order in orders if desk.holds(order.request.prompt)]
    desk.levels.append(len(groups))
    found = iter((yield from _ask(desk, askable)) if askable else [])
    joined: list[_Record] = []
    ready = iter(orders)
    for group in groups:
        if len(group) == 1:
            joined.append(group[0])
            continue
        order = next(ready)
        answer = next(found) if desk.holds(order.request.prompt) else "no_room"
        joined.append(_make_record(desk, order, answer))
    return joined


def _merge_records(records: Sequence[_Record]) -> _Record:
    """Return the lines of all records; for passing sections, only the lines of the last record."""
    lines: dict[Line, None] = {}
    for section in SECTIONS:
        said = [[row for row in record.lines if row.section == section] for record in records]
        told = [rows for rows in said if rows]
        for rows in told[-1:] if section in _PASSING else told:
            lines.update(dict.fromkeys(rows))
    return _Record(list(lines), frozenset().union(*(record.messages for record in records)))


_PASSING: Final = frozenset({"In progress", "Blocked", "Next steps"})


def _group_records(desk: _Desk, records: Sequence[_Record]) -> Iterator[list[_Record]]:
    """Yield groups of records that fit one request; only the last may have a single record."""
    frame = REDUCE.format(quoted="", elsewhere=desk.elsewhere, words=desk.words)
    room = desk.room(frame)
    group: list[_Record] = []
    held = 0
    for whole in records:
        record, size = whole, desk.job.count(_quote_records([whole]))
        if len(group) > 1 and held + size > room:
            yield group
            group, held = [], 0
        if size > room // 2:
            lines, _ = _within(whole.lines, max(room // 2 - _SEAMS, 1), desk.job.count)
            record = whole._replace(lines=lines)
            size = desk.job.count(_quote_records([record]))
        group.append(record)
        held += size
    yield group


def _quote_records(records: Iterable[_Record]) -> str:
    """Return records as a request holds them; their lines are clean and cannot close a tag."""
    return "\n".join(f"<record>\n{render(record.lines)}\n</record>" for record in records)


def _joining(desk: _Desk, group: Sequence[_Record], level: int, place: tuple[int, int]) -> _Order:
    quoted, merged = _quote_records(group), _merge_records(group)
    prompt = REDUCE.format(quoted=quoted, elsewhere=desk.elsewhere, words=desk.words)
    prompt = desk.list_salient(merged.messages, prompt)
    dropped = len(desk.job.messages)
    request = SummaryRequest(SYSTEM, prompt, quoted, desk.answer, dropped, level, *place)
    spare, _ = _within(merged.lines, desk.answer, desk.job.count)
    return _Order(request, spare, merged.messages, keep=True)


def _finish_record(desk: _Desk, lines: Sequence[Line]) -> Written:
    """Return the record, cut to the budget, or the flaw that keeps it out of the history."""
    kept, out = _within(lines, desk.job.tokens, desk.job.count)
    desk.removed += out
    prose = render(kept)
    if not kept or desk.job.count(prose) >= desk.size:
        return desk.make_written(None, "summary_inflated")
    return desk.make_written(prose, None)
