"""OpenAI Chat Completions, as used by all compatible servers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects import names
from ullage.core.dialects.dialect import Dialect, Endpoint, Errors, Fields, Routes, Shape
from ullage.core.dialects.framing import Framing, ParallelFraming
from ullage.core.dialects.openai import break_off, find_cache_key, report, write_too_large
from ullage.core.dialects.rounds import AddedTools
from ullage.core.messages.fields import field_of
from ullage.core.messages.size import Size

if TYPE_CHECKING:
    from ullage.core.dialects.client import ClientForm
    from ullage.core.dialects.form import Form
    from ullage.core.dialects.reply import Assembly, Watch
    from ullage.core.dialects.rounds import Rounds
    from ullage.core.dialects.usage import Usage
    from ullage.core.messages.transcript import Codec

FRAMING: Final = Framing()

OWN_FRAMING: Final = Framing(
    call=Size(0, 2, 5),
    result=Size(0, 0, 2),
    ids=False,
    names_twice=True,
    parallel=ParallelFraming(once=Size(0, 19, 24), call=Size(0, 4, 8), result=Size(0, 3, 6)),
)
"""The framing of OpenAI's own models. The tokens for calls come from comparisons with reported
usage: langchain4j's OpenAiTokenCountEstimator (its tests ask the API), openai-java's issue 5 (a
call with a result, 35 tokens: no id is rendered), and community.openai.com, topic 538914 (40, 89
and 114 tokens for one, two and three calls).
"""

FIELDS: Final = Fields(output=("max_completion_tokens", "max_tokens"))


def make_codec(*memory: Any) -> Codec:
    """Return a codec; it stores what it reads in the two arguments."""
    from ullage.core.dialects.openai_chat.codec import OpenAIChat

    return OpenAIChat(*memory)


def make_reader(salt: str) -> Assembly:
    """Return an object that assembles one answer."""
    from ullage.core.dialects.openai_chat.stream import ChatAnswer

    return ChatAnswer(salt)


def make_watch() -> Watch:
    """Return an object that watches one stream."""
    from ullage.core.dialects.openai_chat.stream import ChatWatch

    return ChatWatch()


def make_form() -> Form:
    """Return an object that writes a session."""
    from ullage.core.dialects.openai_chat.render import ChatForm

    return ChatForm()


def make_rounds(names: frozenset[str]) -> Rounds:
    """Return an object that joins several rounds into one answer."""
    from ullage.core.dialects.openai_chat.rounds import ChatRounds

    return ChatRounds(names)


def is_shaped(request: Mapping[str, Any]) -> bool:
    """Tell whether a request prescribes the form of the answer."""
    from ullage.core.dialects.openai_chat.rounds import is_shaped as tell

    return tell(request)


def find_clients() -> Sequence[ClientForm]:
    """Return the forms of the SDK clients."""
    from ullage.core.dialects.openai_chat.clients import CLIENTS

    return CLIENTS


def read_usage(fields: Mapping[str, Any]) -> Usage | None:
    """Read a usage report."""
    from ullage.core.dialects.usage import read_openai

    return read_openai(fields)


def _is_tool(tool: Any) -> bool:
    return field_of(tool, "function") is not None or field_of(tool, "custom") is not None


DIALECT: Final = Dialect(
    name=names.OPENAI_CHAT,
    title="Chat Completions",
    short="chat",
    aliases=("chat", "openai"),
    fields=FIELDS,
    shape=Shape(
        roles=frozenset({"tool", "function"}),
        keys=("tool_calls", "tool_call_id", "function_call"),
        parts=frozenset({"image_url", "file"}),
        is_tool=_is_tool,
        keywords=frozenset({"max_completion_tokens"}),
        parameters=frozenset({"messages", "max_completion_tokens"}),
    ),
    framing=FRAMING,
    own_framing=OWN_FRAMING,
    make_codec=make_codec,
    make_reader=make_reader,
    make_watch=make_watch,
    make_form=make_form,
    added_tools=AddedTools(make_rounds, "none", is_shaped),
    telling=re.compile(rb'"finish_reason"\s*:\s*"|"usage"\s*:\s*\{|"timings"|"error"|\[DONE\]'),
    read_usage=read_usage,
    reports=frozenset({"prompt_tokens"}),
    endpoint=Endpoint(
        address=lambda base, _: f"{base.rstrip('/')}/chat/completions",
        defaults=lambda _: {"stream_options": {"include_usage": True}},
        trailing=True,
        home=("api.openai.com", "OPENAI_API_KEY"),
        counts="/v1/chat/completions/input_tokens",
        cache_key=find_cache_key,
    ),
    errors=Errors(
        report,
        lambda tokens, bound: write_too_large(tokens, bound, "messages"),
        break_off,
    ),
    routes=Routes(
        guarded={"/v1/chat/completions": FIELDS},
        checked=frozenset({"/v1/completions", "/v1/embeddings"}),
        plain=(
            (
                frozenset({"GET"}),
                re.compile(r"/v1/models(?:/[A-Za-z0-9._:@-]+(?:/[A-Za-z0-9._:@-]+)*)?"),
            ),
        ),
    ),
    clients=find_clients,
)
