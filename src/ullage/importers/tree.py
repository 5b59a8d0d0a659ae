"""Finds the lines of a Claude Code transcript that lead to its newest one.

Lines name their parents, so a file is a tree: a rewind leaves an abandoned branch, and a compaction
starts a new root that names its logical parent. It knows no tokens and builds no messages.

Sources: the session format as microsoft/amplifier describes it
(ai_working/claude_code_logging/session_format_specification.md), the types of the Claude Agent SDK
(`sdk.d.ts`) for the lines that a boundary keeps, ryoppippi/ccusage for repeated messages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from ullage.importers.lines import ObjectLine
from ullage.importers.session import words

TALK: Final = frozenset({"user", "assistant"})
MOST_KEPT: Final = 8
"""How many times the lines of a file may be kept; limits the work, far above real files."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One line of the tree; `rank` is its position, `torn` means that a lost line precedes it.

    `kind` is the type of the line, `message` its contents (possibly empty), `response` the id of
    the response that an assistant's line belongs to.
    """

    fields: Mapping[str, Any]
    uuid: str
    rank: int
    torn: bool
    kind: str
    message: Mapping[str, Any]
    response: str | None

    @classmethod
    def of(cls, fields: Mapping[str, Any], uuid: str, rank: int, *, torn: bool) -> Node:
        """Read a line."""
        kind = words(fields.get("type")) or ""
        message = fields.get("message")
        message = message if isinstance(message, dict) else {}
        response = words(message.get("id")) if kind == "assistant" else None
        return cls(fields, uuid, rank, torn, kind, message, response)

    @property
    def talks(self) -> bool:
        """Tell whether it is a line of the user or of the model."""
        return self.kind in TALK

    @property
    def aside(self) -> bool:
        """Tell whether a subagent wrote it."""
        return self.fields.get("isSidechain") is True

    @property
    def fails(self) -> bool:
        """Tell whether it shows an API error as if the model had written it."""
        return self.fields.get("isApiErrorMessage") is True

    @property
    def bounds(self) -> bool:
        """Tell whether it is the boundary of a compaction."""
        return self.kind == "system" and self.fields.get("subtype") == "compact_boundary"

    @property
    def summarises(self) -> bool:
        """Tell whether it is the summary that a compaction left."""
        return self.kind == "user" and self.fields.get("isCompactSummary") is True

    @property
    def blocks(self) -> Sequence[Mapping[str, Any]]:
        """The valid blocks of its message."""
        content = self.message.get("content")
        return [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []

    @property
    def answers(self) -> frozenset[str]:
        """The ids of the calls whose results it holds."""
        if self.kind != "user":
            return frozenset()
        ids = (b.get("tool_use_id") for b in self.blocks if b.get("type") == "tool_result")
        return frozenset(i for i in ids if isinstance(i, str))


@dataclass(frozen=True, slots=True)
class KeptNodes:
    """Lines that a boundary kept, in order, and the line after which they now come."""

    anchor: str | None
    nodes: tuple[Node, ...]


class Tree:
    """The lines of one file by their ids; the first of several lines with one id counts."""

    def __init__(self, lines: Iterable[ObjectLine]) -> None:
        self.nodes: dict[str, Node] = {}
        self.others: list[Mapping[str, Any]] = []
        self.repeated = 0
        self.gaps = 0
        self.abandoned = 0
        for fields, torn in lines:
            self._add(fields, torn=torn)
        nodes = list(self.nodes.values())
        main = [node for node in nodes if not node.aside]
        self.subagent = bool(nodes) and not any(node.talks for node in main)
        self.main = nodes if self.subagent else main
        self.asides = sum(node.talks for node in nodes) - sum(n.talks for n in self.main)
        self._places = {node.uuid: i for i, node in enumerate(self.main)}
        self._steps = MOST_KEPT * max(len(nodes), 1)
        self.kept = {node.uuid: self._read_kept(node) for node in self.main if node.bounds}
        self._keepers: dict[str, list[Node]] = {}
        for boundary, kept in self.kept.items():
            for node in kept.nodes:
                self._keepers.setdefault(node.uuid, []).append(self.nodes[boundary])

    def _add(self, fields: Mapping[str, Any], *, torn: bool) -> None:
        uuid = words(fields.get("uuid"))
        if uuid is None and words(fields.get("type")) not in TALK:
            self.others.append(fields)
            return
        rank = len(self.nodes)
        name = uuid or f"line without an id {rank}"
        if name in self.nodes:
            self.repeated += 1
            return
        self.nodes[name] = Node.of(fields, name, rank, torn=torn)

    def chain(self) -> list[Node]:
        """Return the lines from the first to the newest, across all compactions."""
        ends = (n for n in reversed(self.main) if n.talks or n.bounds)
        node = next(ends, None)
        found: list[Node] = []
        seen: set[str] = set()
        while node is not None and node.uuid not in seen:
            seen.add(node.uuid)
            found.append(node)
            node = self._before(node)
        found.reverse()
        return list(self._whole(found, seen))

    def _before(self, node: Node) -> Node | None:
        """Return the line before, or None at the root or if it is not in the file."""
        opens = node.bounds or node.summarises
        name = words(node.fields.get("parentUuid"))
        if node.bounds or (opens and name is None):
            name = words(node.fields.get("logicalParentUuid")) or name
        parent = self.nodes.get(name) if name is not None else None
        if parent is not None:
            return self._rehang(node, parent)
        if opens or node.torn or "parentUuid" not in node.fields:
            return self._previous(node)
        self.gaps += name is not None
        return None

    def _previous(self, node: Node) -> Node | None:
        """Return the line before this one in the file, as the best remaining guess."""
        place = self._places.get(node.uuid, 0)
        return self.main[place - 1] if place else None

    def _rehang(self, node: Node, parent: Node) -> Node:
        """Return the parent, or the boundary that kept it, as kept lines are written only once."""
        keepers = self._keepers.get(parent.uuid, ())
        place = bisect_left(keepers, node.rank, key=attrgetter("rank"))
        if not place or keepers[place - 1].rank < parent.rank:
            return parent
        boundary = keepers[place - 1]
        anchor = self.nodes.get(self.kept[boundary.uuid].anchor or "")
        behind = anchor is not None and boundary.rank < anchor.rank < node.rank
        return anchor if anchor is not None and behind else boundary

    def _read_kept(self, boundary: Node) -> KeptNodes:
        """Read the lines that a boundary kept, from a list of ids or the ends of a segment."""
        told = boundary.fields.get("compactMetadata")
        told = told if isinstance(told, Mapping) else {}
        listed = told.get("preservedMessages")
        if isinstance(listed, Mapping) and isinstance(listed.get("uuids"), list):
            nodes = [self.nodes[u] for u in listed["uuids"] if isinstance(u, str) and u in self]
            return KeptNodes(words(listed.get("anchorUuid")), tuple(nodes))
        segment = told.get("preservedSegment", told.get("preserved_segment"))
        if not isinstance(segment, Mapping):
            return KeptNodes(None, ())
        head, anchor, tail = (
            words(segment.get(f"{end}Uuid", segment.get(f"{end}_uuid")))
            for end in ("head", "anchor", "tail")
        )
        return KeptNodes(anchor, tuple(self._segment(head, tail)))

    def __contains__(self, uuid: str) -> bool:
        return uuid in self.nodes

    def _segment(self, head: str | None, tail: str | None) -> list[Node]:
        """Return the lines from `head` to `tail`, or none if `tail` does not lead to `head`."""
        found: dict[str, Node] = {}
        node = self.nodes.get(tail or "")
        while node is not None and node.uuid not in found and self._steps > 0:
            self._steps -= 1
            found[node.uuid] = node
            if node.uuid == head:
                return list(found.values())[::-1]
            node = self.nodes.get(words(node.fields.get("parentUuid")) or "")
        return []

    def _whole(self, chain: Sequence[Node], seen: set[str]) -> Iterator[Node]:
        """Yield the chain with the lines of parallel calls that a walk along parents misses.

        Each block of a response has its own line, and each result is a child of its call's line. So
        all results but one, and sometimes calls, are side branches.
        """
        last = {node.response: node.uuid for node in chain if node.response is not None}
        answered = {call for node in chain for call in node.answers}
        missed: dict[str, list[Node]] = {}
        for node in self.main:
            if node.uuid in seen or not node.talks:
                continue
            source = node if node.kind == "assistant" else self._asker(node)
            response = source.response if source is not None else None
            if (
                response is None
                or response not in last
                or (node.answers and node.answers <= answered)
            ):
                continue
            seen.add(node.uuid)
            answered |= node.answers
            missed.setdefault(last[response], []).append(node)
        self.abandoned = sum(n.talks and n.uuid not in seen for n in self.main)
        for node in chain:
            yield node
            yield from missed.get(node.uuid, ())

    def _asker(self, node: Node) -> Node | None:
        """Return the line with the call of a line of results, by its parent."""
        if not node.answers:
            return None
        return self.nodes.get(words(node.fields.get("parentUuid")) or "")
