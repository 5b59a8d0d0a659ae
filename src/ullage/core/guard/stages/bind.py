"""A part of the second stage: leave out reasoning whose system text or tools have changed.

System text and tools precede every message. If they change, or if a provider refuses reasoning that
was signed after them, all reasoning so far is left out, by a checkpoint of its own. Reasoning that
edits unbind is handled by the plan (`core.compaction.binding`). This module compacts nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ullage.core.compaction.binding import strip_behind
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.compaction.edits import apply, compose
from ullage.core.guard.request import Need, NeedSave
from ullage.core.messages.fields import json_text, mapping
from ullage.core.messages.transcript import DIGEST_BYTES
from ullage.core.tokens.counting import measure

if TYPE_CHECKING:
    from ullage.core.compaction.edits import Edited, Script
    from ullage.core.guard.request import Request, Setup
    from ullage.core.guard.stages.replay import Replayed

STRATEGY = "strip_reasoning"
"""The strategy name in checkpoints of this stage."""


def bind(
    setup: Setup, request: Request, replayed: Replayed, *, forced: bool = False
) -> Generator[Need, Any, Replayed]:
    """Leave out all reasoning so far if the text before it has changed, or if `forced`."""
    if not replayed.edited.transcript.rules.bound:
        return replayed
    beside, before = _digest_beside(request), replayed.conversation.beside
    known = replace(replayed.conversation, beside=beside)
    replayed = replace(replayed, conversation=known)
    strips = strip_behind(replayed.edited.transcript)
    if not strips or not (forced or before not in ("", beside)):
        return replayed
    script = compose(replayed.script, replayed.edited, strips)
    planned = _record(setup, request, replayed, script)
    kept: Checkpoint = yield NeedSave(planned)
    return replace(
        replayed,
        edited=apply(replayed.read.history, kept.script, setup.codec),
        script=kept.script,
        generation=kept.generation + 1,
        checkpoint=kept,
        is_reported=False,
    )


def _record(setup: Setup, request: Request, replayed: Replayed, script: Script) -> Checkpoint:
    """Return the checkpoint of a script that only leaves reasoning out."""
    read, count = replayed.read, script.reach()
    edited = apply(read.history, script, setup.codec)
    before = _count(setup, request, replayed.edited)
    known = replayed.checkpoint
    return Checkpoint(
        scope=setup.checkpoint_scope,
        prefix=read.prefixes[count - 1],
        count=count,
        script=script,
        strategy=STRATEGY,
        trigger="unbound_reasoning",
        policy=setup.policy.identity,
        basis="estimated",
        tokens_before=before,
        tokens_after=min(before, _count(setup, request, edited)),
        generation=replayed.generation,
        tail_count=len(read.history) - count,
        summary=known.summary if known is not None else "",
    )


def _count(setup: Setup, request: Request, edited: Edited) -> int:
    sent = edited.transcript
    return measure(sent, setup.meter, system=request.system, tools=request.tools).count().tokens


def _digest_beside(request: Request) -> str:
    """Return a hash of system text and tools, without cache marks, because these move."""
    listed = request.tools if isinstance(request.tools, list | tuple) else ()
    known = [mapping(tool) or {"tool": str(tool)} for tool in listed]
    tools = [{k: v for k, v in tool.items() if k != "cache_control"} for tool in known]
    if isinstance(request.tools, Mapping):
        tools = [dict(request.tools)]
    text = f"{request.system or ''}\0{json_text(tools, 0)}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).hexdigest()
