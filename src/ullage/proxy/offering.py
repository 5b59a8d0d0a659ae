"""The tools that the proxy adds to a request, with which a model reads left-out text.

The module decides which tools may be added and when, and writes the request with them. It does not
know the store, and answers no call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ullage.core.compaction.edits import find_references
from ullage.core.dialects.reply import fields, members
from ullage.core.dialects.rounds import leaves_choice
from ullage.core.session import recall, searching
from ullage.proxy.call import make_request

if TYPE_CHECKING:
    from ullage.core.compaction.edits import Script
    from ullage.guard.port import Port
    from ullage.guard.view import View
    from ullage.proxy.call import ProxyCall
    from ullage.sdk.errors import Trouble

UNREADABLE: Final = "an answer that cannot be read, and may hold calls of tools that were added"
"""The reason why an answer to a request with added tools is not passed on."""

ABOUT_TOOLS: Final = re.compile(r"\btools?\b|function call", re.IGNORECASE)
"""Words in the refusal of a server that accepts no tools."""

HISTORY: Final = frozenset({"input", "total", "malformed_history", "rate_limit", "quota"})
"""Kinds of refusals that have other causes."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Tools that are added to a request: their names, and their definitions in its dialect."""

    names: frozenset[str]
    tools: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class LaterRound:
    """A round after the first one of a request: its number, from 2 on, and its tools.

    Without an `offer` the tools are no longer in the request; a `silent` round may call no tool.
    Calls of the `last` round are not answered.
    """

    number: int
    offer: Offer | None
    silent: bool = False
    last: bool = False


def find_offer(call: ProxyCall, *, searches: bool) -> Offer | None:
    """Return the tools that may be added to a request, or None.

    The client must let the model choose its calls, and ask for one answer in the model's own words.
    If the client has a tool with the same name, that tool stays the client's. `searches` says that
    left-out text can be searched.
    """
    added, given = call.form.spoken.added_tools, call.body.fields
    choices, tools = given.get("n"), given.get("tools")
    if added is None or call.rule.observe or not call.rule.recall_tools:
        return None
    if call.kept or call.form.fields.single or choices not in (None, 1):
        return None
    if tools is not None and not isinstance(tools, list):
        return None
    if not leaves_choice(given.get("tool_choice")) or (not tools and added.is_shaped(given)):
        return None
    specs = (recall.SPEC, *((searching.SPEC,) if searches else ()))
    theirs = {name for tool in members(tools) for name in _list_names(tool)}
    mine = [spec for spec in specs if spec.name not in theirs]
    form = call.form.spoken.make_form()
    names = frozenset(spec.name for spec in mine)
    return Offer(names, tuple(form.tool(spec) for spec in mine)) if mine else None


def _list_names(tool: Mapping[str, Any]) -> list[Any]:
    """Return the possible names of a tool, wherever its dialect puts them."""
    held = (tool, fields(tool.get("function")), fields(tool.get("custom")))
    return [each.get("name") for each in held]


def write_tools(given: bytes, offer: Offer) -> bytes:
    """Return a request's list of tools with the added ones; the others are as they came."""
    new = json.dumps([*offer.tools]).encode("ascii")[1:]
    held = given.strip()
    if held in (b"", b"null") or held[1:-1].strip() == b"":
        return b"[" + new
    return held[:-1] + b", " + new


async def prepare(port: Port, call: ProxyCall, offer: Offer | None) -> tuple[View, Offer | None]:
    """Return a prepared request, and the tools added to it: those of the offer, or None.

    They are added once some left-out text can be read back, and then to every later request of the
    conversation, since each change of the tools costs a provider's cache.
    """
    spoken = call.form.dialect
    if call.round is not None:
        return await port.aprepare(make_request(call, call.round.offer), spoken), call.round.offer
    bare = make_request(call)
    if offer is None:
        return await port.aprepare(bare, spoken), None
    known = await port.afind_checkpoint(bare, spoken)
    if known is None or not _names_texts(known.script):
        view = await port.aprepare(bare, spoken)
        if not _names_texts(find_script(view)):
            return view, None
        return await _add_tools(port, call, view, offer)
    view = await port.aprepare(make_request(call, offer), spoken)
    if _names_texts(find_script(view)) and not is_over(view):
        return view, offer
    return await port.aprepare(bare, spoken), None


async def _add_tools(
    port: Port, call: ProxyCall, view: View, offer: Offer
) -> tuple[View, Offer | None]:
    """Return a request that was just compacted, with the tools if they fit."""
    again = await port.aprepare(make_request(call, offer), call.form.dialect)
    if is_over(again):
        return view, None
    made = view.prepared
    if again.prepared.checkpoint is None:
        shown = replace(again.prepared, outcome=made.outcome, checkpoint=made.checkpoint)
        again = replace(again, prepared=shown)
    return again, offer


def find_script(view: View) -> Script | None:
    """Return the script of a view's compaction, or None without one."""
    made = view.prepared.checkpoint or view.prepared.replayed
    return None if made is None else made.script


def _names_texts(script: Script | None) -> bool:
    """Tell whether left-out text has references to read it back."""
    if script is None:
        return False
    edits: Sequence[Any] = (*script.clears, *script.inserts)
    return any(find_references(edit.text) for edit in edits)


def is_over(view: View) -> bool:
    """Tell whether a request may exceed its window."""
    bound = view.window.input_tokens
    return bound is not None and view.prepared.count.high >= bound


def is_about_tools(found: Trouble) -> bool:
    """Tell whether the tools in a request may be the reason of its refusal."""
    if found.lost or found.kind.kind in HISTORY:
        return False
    return found.text == UNREADABLE or ABOUT_TOOLS.search(found.text) is not None
