"""Transcripts of Claude Code: the messages in the window at each call, and the reports.

The format is internal to its program and changes. Every field is optional here, and unknown items
are counted. The file holds no window, no system prompt and no tool schemas, so none are returned;
`session.NOT_IN_FILE` describes the tokens that are reported for them. `tree` decides which lines
count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from ullage.core.dialects import names
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.core.values.progress import Progress, ignore
from ullage.importers import titles
from ullage.importers.lines import ObjectLines, note
from ullage.importers.session import (
    NOT_IN_FILE,
    CallReport,
    ImportedSession,
    ModelTurn,
    PaidCall,
    plural,
    total,
    words,
)
from ullage.importers.tree import TALK, Node, Tree

SILENT: Final = frozenset(
    {
        "system",
        "progress",
        "queue-operation",
        "file-history-snapshot",
        "summary",
        "last-prompt",
        "custom-title",
        "ai-title",
    }
)
"""Known lines that are part of no prompt."""

PROVIDERS: Final = ("anthropic", "bedrock", "vertex")
"""Providers of Claude Code's models, unless it uses another server, which no file names."""

SYNTHETIC: Final = "<synthetic>"
"""The model name of answers that no model wrote."""

SEALED: Final = frozenset({"redacted_thinking"})
"""Blocks whose text is not part of the answer."""

CLEARINGS: Final = frozenset({"microcompact_boundary"})
"""Lines that report cleared results; the file keeps the results themselves."""


def read(data: bytes, path: str = "", report: Progress = ignore) -> ImportedSession:
    """Read a transcript from its bytes; raises ConfigurationError if it holds no messages."""
    lines = ObjectLines(data, report)
    tree = Tree(lines)
    chain = tree.chain()
    identity = _identity(chain)
    ledger = _Ledger(tree.main, identity)
    window = _Window(tree, ledger)
    for node in chain:
        window.take(node)
    window.settle()
    if not window.messages and not window.start:
        raise ConfigurationError(
            f"{path or 'the file'} holds no messages of a Claude Code session: expected lines of "
            "type user and assistant"
        )
    unread = {**lines.unread, **window.unread}
    for fields in tree.others:
        if words(fields.get("type")) not in SILENT:
            note(unread, fields.get("type"))
    last = next((t for t in reversed(window.turns) if t.model), None)
    now = window.current()
    return ImportedSession(
        source="claude",
        dialect=names.ANTHROPIC,
        messages=tuple(window.messages),
        turns=tuple(window.turns),
        start=window.start,
        model=last.model if last is not None else None,
        tokens=now.tokens if now is not None else None,
        covered=now.stop if now is not None else None,
        id=identity,
        path=path,
        summaries=tuple(window.summaries),
        spent=ledger.sum_spent(),
        calls=ledger.calls(),
        providers=PROVIDERS,
        apart=NOT_IN_FILE,
        project=_find_newest(chain, "cwd"),
        title=titles.of(tree.others, chain),
        at=_find_newest(chain, "timestamp"),
        unread=MappingProxyType(unread),
        warnings=tuple(_warnings(tree, chain)),
    )


class _Window:
    """The messages in order, from the lines of one branch."""

    def __init__(self, tree: Tree, ledger: _Ledger) -> None:
        self._tree = tree
        self._ledger = ledger
        self.messages: list[dict[str, Any]] = []
        self.turns: list[ModelTurn] = []
        self.summaries: list[int] = []
        self.unread: dict[str, int] = {}
        self.start = 0
        self._compacted = False
        self._bounded = False
        self._kept: Sequence[Node] = ()
        self._anchor: str | None = None
        self._pieces: dict[str, list[dict[str, Any]]] = {}
        self._calls: dict[str, int] = {}
        self._results: list[dict[str, Any]] | None = None

    def take(self, node: Node) -> None:
        """Take the next line of the branch."""
        if node.uuid != self._anchor and not node.summarises and node.kind in TALK:
            self.settle()  # no summary followed
        if node.bounds:
            self._cut()
            self._bounded = True
            kept = self._tree.kept[node.uuid]
            self._kept, self._anchor = kept.nodes, kept.anchor
        elif node.kind == "assistant":
            self._answer(node)
        elif node.kind == "user":
            if node.summarises and not self._bounded:  # older files: a summary and no boundary
                self._cut()
            self._bounded = self._bounded and not node.summarises
            self._ask(node)
        elif node.kind == "attachment":
            self._attach(node)
        elif node.kind not in SILENT:
            note(self.unread, node.fields.get("type"))
        if self._kept and (node.uuid == self._anchor or node.summarises):
            self.settle()

    def settle(self) -> None:
        """Add the messages that a compaction kept, after the line that they are attached to."""
        kept, self._kept = self._kept, ()
        for node in kept:
            if node.kind == "assistant" and not node.fails:
                self._piece(node)
            elif node.kind == "user":
                self._ask(node)

    def current(self) -> ModelTurn | None:
        """Return the last reported call of this window, or None."""
        for turn in reversed(self.turns):
            if turn.start < self.start or turn.tokens is not None:
                return turn if turn.start == self.start else None
        return None

    def _cut(self) -> None:
        """Begin a new window: it holds no earlier messages."""
        self.settle()
        self.start = len(self.messages)
        self._compacted = True
        self._bounded = False
        self._results = None
        self._pieces.clear()
        self._calls.clear()

    def _ask(self, node: Node) -> None:
        content = self._content(node)
        if content is None:
            return
        if node.summarises:
            self.summaries.append(len(self.messages))
        results = content if isinstance(content, list) and node.answers else None
        if results is not None and self._results is not None:
            self._results.extend(results)  # results of parallel calls are sent as one message
            return
        self.messages.append({"role": "user", "content": content})
        self._results = results

    def _answer(self, node: Node) -> None:
        if node.fails:
            return  # shown to the user, never sent
        model = words(node.message.get("model"))
        call = self._calls.get(node.response or "")
        stop = len(self.messages)
        self._piece(node)
        if model == SYNTHETIC:
            return
        self._bounded = False
        report = read_report(node)
        if call is not None:
            turn = self.turns[call]
            if report.size > CallReport(turn.usage).size:
                self.turns[call] = replace(turn, usage=report.usage, tokens=report.tokens)
            return
        if node.response is not None:
            self._calls[node.response] = len(self.turns)
        self.turns.append(
            ModelTurn(
                number=len(self.turns) + 1,
                start=self.start,
                stop=stop,
                tokens=report.tokens,
                usage=report.usage,
                model=model,
                at=words(node.fields.get("timestamp")),
                compacted=self._compacted,
                call=self._ledger.place(node),
            )
        )
        self._compacted = False

    def _piece(self, node: Node) -> None:
        """Add a line to the response that it belongs to."""
        content = self._content(node) or []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        known = self._pieces.get(node.response or "")
        if known is not None:
            known.extend(block for block in blocks if block not in known)
            return
        self.messages.append({"role": "assistant", "content": blocks})
        self._results = None
        if node.response is not None:
            self._pieces[node.response] = blocks

    def _attach(self, node: Node) -> None:
        """Add text that the user typed while the model worked; count other attachments."""
        attachment = node.fields.get("attachment")
        fields = attachment if isinstance(attachment, Mapping) else {}
        prompt = words(fields.get("prompt"))
        if fields.get("type") == "queued_command" and prompt is not None:
            self.messages.append({"role": "user", "content": prompt})
            self._results = None
        else:
            note(self.unread, f"attachment {words(fields.get('type')) or 'unnamed'}")

    def _content(self, node: Node) -> str | list[dict[str, Any]] | None:
        """Return text, or a new list of the blocks, or None if there is no content."""
        content = node.message.get("content")
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            note(self.unread, f"{node.kind} line without content")
            return None
        blocks = [block for block in content if isinstance(block, dict)]
        if len(blocks) < len(content):
            note(self.unread, "block that is no object")
        return blocks


def read_report(node: Node) -> CallReport:
    """Return the report in a line of the model."""
    return CallReport.of(Usage.from_report(node.message.get("usage"), dialect=names.ANTHROPIC))


def _find_newest(chain: Sequence[Node], field: str) -> str | None:
    """Return the newest value of a field, or None if no line has one."""
    told = (words(node.fields.get(field)) for node in reversed(chain))
    return next((value for value in told if value is not None), None)


def _identity(chain: Sequence[Node]) -> str | None:
    """Return the session's id from the newest line, because older lines may be copies."""
    return _find_newest(chain, "sessionId")


@dataclass(slots=True)
class _Entry:
    """One call, collected from its lines: the largest report, and each block once."""

    report: CallReport
    model: str | None
    blocks: list[dict[str, Any]] = field(default_factory=list)
    final: bool = False

    def take(self, node: Node) -> None:
        """Add a line; the report with a stop reason is the final one."""
        report = read_report(node)
        if report.size > self.report.size:
            self.report = report
        self.final = self.final or words(node.message.get("stop_reason")) is not None
        content = node.message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else node.blocks
        new = (dict(b) for b in blocks if b.get("type") not in SEALED)
        self.blocks.extend(block for block in new if block not in self.blocks)


class _Ledger:
    """The session's own calls, including abandoned branches; each call counts once."""

    def __init__(self, nodes: Sequence[Node], identity: str | None) -> None:
        self._entries: dict[tuple[str, str | None], _Entry] = {}
        for node in nodes:
            owner = words(node.fields.get("sessionId"))
            model = words(node.message.get("model"))
            if node.kind != "assistant" or owner not in (identity, None):
                continue
            if model == SYNTHETIC or node.fails:
                continue
            self._entries.setdefault(_key(node), _Entry(CallReport(), model)).take(node)
        self._places = {key: place for place, key in enumerate(self._entries)}

    def place(self, node: Node) -> int | None:
        """Return the position of a line's call among the calls, or None for another session's."""
        return self._places.get(_key(node))

    def calls(self) -> tuple[PaidCall, ...]:
        """Return the calls in the order in which they began."""
        return tuple(
            PaidCall(
                e.report.usage, e.model, ({"role": "assistant", "content": e.blocks},), e.final
            )
            for e in self._entries.values()
        )

    def sum_spent(self) -> Usage | None:
        """Return the sum of the reports, or None without reports."""
        usages = (entry.report.usage for entry in self._entries.values())
        return total([usage for usage in usages if usage is not None])


def _key(node: Node) -> tuple[str, str | None]:
    return node.response or node.uuid, words(node.fields.get("requestId"))


def _warnings(tree: Tree, chain: Sequence[Node]) -> list[str]:
    """Return warnings about parts of the file that are not in the window, or were guessed."""
    told = []
    if tree.subagent:
        told.append("every line is a subagent's: this is its window, not that of its session")
    if tree.asides:
        told.append(f"{plural(tree.asides, 'line')} of subagents are not in this window")
    if tree.abandoned:
        told.append(f"{plural(tree.abandoned, 'line')} of abandoned branches are left out")
    if tree.repeated:
        told.append(f"{plural(tree.repeated, 'line')} were in the file before and count once")
    if tree.gaps:
        told.append(
            "the line before the first one is not in the file: earlier messages are unknown"
        )
    cleared = sum(words(node.fields.get("subtype")) in CLEARINGS for node in chain)
    if cleared:
        told.append(
            f"older tool results were cleared {plural(cleared, 'time')}; the file keeps them whole,"
            " so they are counted as if they were still there"
        )
    return told
