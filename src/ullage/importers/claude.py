"""Transcripts of Claude Code: what stood in the window at each call, and what was reported.

The format is internal to its program and changes: every field is optional here, what is not
understood is counted. The file holds no window, no system prompt and no tool schemas, so none
are given; `session.NOT_IN_FILE` names the tokens that are reported for them. Which lines count is
`tree`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from ullage.core.errors import ConfigurationError
from ullage.core.usage import Usage
from ullage.importers.lines import Lines, note
from ullage.importers.session import Report, Session, Turn, plural, total, words
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
"""Lines that are read and stand in no prompt."""

SYNTHETIC: Final = "<synthetic>"
"""The model named in answers that no model gave."""

CLEARINGS: Final = frozenset({"microcompact_boundary"})
"""Lines that say that older results were cleared; the file keeps them as they were."""


def read(data: bytes, path: str = "") -> Session:
    """Read a transcript from its bytes; raises ConfigurationError where it holds no messages."""
    lines = Lines(data)
    tree = Tree(lines)
    chain = tree.chain()
    window = _Window(tree)
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
    identity = _identity(chain)
    last = next((t for t in reversed(window.turns) if t.model), None)
    now = window.current()
    return Session(
        source="claude",
        dialect="anthropic",
        messages=tuple(window.messages),
        turns=tuple(window.turns),
        start=window.start,
        model=last.model if last is not None else None,
        tokens=now.tokens if now is not None else None,
        covered=now.stop if now is not None else None,
        id=identity,
        path=path,
        summaries=tuple(window.summaries),
        spent=_spent(tree.main, identity, window.reports),
        unread=MappingProxyType(unread),
        warnings=tuple(_warnings(tree, chain)),
    )


class _Window:
    """The messages in order, taken from the lines of one branch."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.messages: list[dict[str, Any]] = []
        self.turns: list[Turn] = []
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
        self.reports: dict[str, Report] = {}

    def take(self, node: Node) -> None:
        """Take the next line of the branch."""
        if node.uuid != self._anchor and not node.summarises and node.kind in TALK:
            self.settle()  # no summary came
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
        """Put what a compaction kept behind what it was hung on."""
        kept, self._kept = self._kept, ()
        for node in kept:
            if node.kind == "assistant" and not node.fails:
                self._piece(node)
            elif node.kind == "user":
                self._ask(node)

    def current(self) -> Turn | None:
        """Return the last call of this window that was reported, or None."""
        for turn in reversed(self.turns):
            if turn.start < self.start or turn.tokens is not None:
                return turn if turn.start == self.start else None
        return None

    def _cut(self) -> None:
        """Begin a new window: nothing from before stands in it."""
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
        report = self.reports[node.uuid] = _report(node)
        if call is not None:
            turn = self.turns[call]
            if report.size > Report(turn.usage).size:
                self.turns[call] = replace(turn, usage=report.usage, tokens=report.tokens)
            return
        if node.response is not None:
            self._calls[node.response] = len(self.turns)
        at = words(node.fields.get("timestamp"))
        number = len(self.turns) + 1
        self.turns.append(
            Turn(number, self.start, stop, report.tokens, report.usage, model, at, self._compacted)
        )
        self._compacted = False

    def _piece(self, node: Node) -> None:
        """Add a line to the response that it is a piece of."""
        content = self._content(node) or []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        known = self._pieces.get(node.response or "")
        if known is not None:
            known.extend(blocks)
            return
        self.messages.append({"role": "assistant", "content": blocks})
        self._results = None
        if node.response is not None:
            self._pieces[node.response] = blocks

    def _attach(self, node: Node) -> None:
        """Take what the user typed while the model worked; count other attachments."""
        attachment = node.fields.get("attachment")
        fields = attachment if isinstance(attachment, Mapping) else {}
        prompt = words(fields.get("prompt"))
        if fields.get("type") == "queued_command" and prompt is not None:
            self.messages.append({"role": "user", "content": prompt})
            self._results = None
        else:
            note(self.unread, f"attachment {words(fields.get('type')) or 'unnamed'}")

    def _content(self, node: Node) -> str | list[dict[str, Any]] | None:
        """Return text, or a list of our own of the blocks; None where there is no content."""
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


def _report(node: Node) -> Report:
    return Report.of(Usage.from_report(node.message.get("usage"), dialect="anthropic"))


def _identity(chain: Sequence[Node]) -> str | None:
    """Return the id of the session: that of the newest line, since older ones may be copies."""
    named = (words(node.fields.get("sessionId")) for node in reversed(chain))
    return next((name for name in named if name is not None), None)


def _spent(
    nodes: Sequence[Node], identity: str | None, reports: Mapping[str, Report]
) -> Usage | None:
    """Sum up the session's own calls, of abandoned branches too; a call counts once."""
    best: dict[tuple[str, str | None], Report] = {}
    for node in nodes:
        owner = words(node.fields.get("sessionId"))
        if node.kind != "assistant" or owner not in (identity, None):
            continue
        if node.message.get("model") == SYNTHETIC or node.fails:
            continue
        key = (node.response or node.uuid, words(node.fields.get("requestId")))
        report = reports.get(node.uuid) or _report(node)
        if report.size > best.get(key, Report()).size:
            best[key] = report
    return total([report.usage for report in best.values() if report.usage is not None])


def _warnings(tree: Tree, chain: Sequence[Node]) -> list[str]:
    """Say what of the file is not in the window, or had to be guessed."""
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
        told.append("the line before the first one is not in the file: what was earlier is unknown")
    cleared = sum(words(node.fields.get("subtype")) in CLEARINGS for node in chain)
    if cleared:
        told.append(
            f"older tool results were cleared {plural(cleared, 'time')}; the file keeps them whole,"
            " so they are counted as if they still stood there"
        )
    return told
