"""Tools that the proxy adds, between real llama.cpp servers and the official SDKs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from tests.clients.upstream import CALLING, Pair, models
from tests.proxy.rounds import DIALECTS, ask, history
from tests.proxy.serving import Proxy, listening, proxied
from tests.support import tinymodel
from tests.support.fixtures import StartServer
from ullage.config.serving import ModelRule
from ullage.embedded import Launch

CALL: Final = '[CALL=ullage_search]{"query":"casks"}'
"""All that the calling model says."""

WINDOW: Final = 4096


@pytest.fixture(scope="module")
def searching(
    llama_server: StartServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    """A proxy that adds tools, before a model that searches and one that answers."""
    calling, speaking = models(tmp_path_factory.mktemp("searching"), CALL)
    with ExitStack() as held:
        one = llama_server(Launch(window=WINDOW, chat_template=CALLING), calling)
        other = llama_server(Launch(window=WINDOW), speaking)
        url = held.enter_context(listening(Pair(one, other, WINDOW)))  # type: ignore[arg-type]
        rules = (ModelRule(recall_tools=True),)
        yield held.enter_context(proxied(url, rules=rules))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_real_server_searches_what_was_left_out(searching: Proxy, dialect: str, stream: bool):
    name = "input" if dialect == "openai_responses" else "messages"
    said = history(f"Day {stream}: seven casks, says {dialect}.", turns=16)
    items = [{"type": "message", **message} for message in said]
    limit = "max_output_tokens" if name == "input" else "max_tokens"
    given = {"model": "tiny", "stream": stream, name: items if name == "input" else said, limit: 64}
    before = searching.shown("ullage_tool_answers_total", tool="search", outcome="found")
    told = ask(dialect, searching.url, given)
    assert (told.text, told.calls) == (tinymodel.SENTENCE, [])
    after = searching.shown("ullage_tool_answers_total", tool="search", outcome="found")
    assert after == before + 1
    assert searching.shown("ullage_silent_truncations_total") == 0
