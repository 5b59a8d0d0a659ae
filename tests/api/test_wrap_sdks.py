"""Wrapped clients of Google's, AWS's, Ollama's and Mistral's SDKs, on servers of their shape."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import ullage
from tests.api.speakers import SPEAKERS, Speaker, speaking
from ullage import events

pytestmark = pytest.mark.filterwarnings(  # google-genai derives from a class that aiohttp closed
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)

WINDOW = 500


@pytest.fixture(params=SPEAKERS, ids=lambda speaker: speaker.name)
def speaker(request: pytest.FixtureRequest) -> Speaker:
    found: Speaker = request.param
    return found


PAIRS = [
    pytest.param(speaker, stream, marks=[] if stream is speaker.awaits else [pytest.mark.long],
                 id=f"{speaker.name}-{'streamed' if stream else 'whole'}")
    for speaker in SPEAKERS for stream in (False, True)
]  # fmt: skip
"""By default blocking clients are asked for whole answers, awaiting ones for streams."""


def grow(speaker: Speaker, turns: int) -> list[Any]:
    history = [message for n in range(turns) for message in speaker.turn(n)]
    return [*history, speaker.last("and now?")]


@pytest.mark.parametrize(("speaker", "stream"), PAIRS)
def test_thirty_turns_past_the_window_are_never_refused(speaker: Speaker, stream: bool) -> None:
    with speaking(speaker, window=WINDOW) as voice:
        history: list[Any] = []
        for n in range(30):
            history += speaker.turn(n)
            said = voice.ask([*history, speaker.last("and now?")], stream=stream)
            assert said.strip() == "words of an answer " * 7 + "words of an answer"
        assert voice.refused == 0
        assert voice.of(events.Compacted)
        assert not voice.of(events.RecoveryExhausted)
        assert len(voice.reports()) == 60  # prepared and reported, thirty times


@pytest.mark.parametrize(("speaker", "stream"), PAIRS)
def test_an_overflow_that_the_server_reports_is_recovered_from(
    speaker: Speaker, stream: bool
) -> None:
    with speaking(speaker, window=10**6) as voice:
        history = grow(speaker, 12)
        with pytest.raises(Exception, match=r"too l|exceeds|longer") as failed:
            voice.ask(history, stream=stream, client=voice.bare)
        assert ullage.classify_exception(failed.value).kind == "input"
        assert voice.ask(history, stream=stream)
        assert voice.refused == 2
        (made,) = voice.of(events.Compacted)
        assert made.checkpoint.trigger == "overflow_recovery"


@pytest.mark.parametrize(("speaker", "stream"), PAIRS)
def test_what_no_edit_touches_leaves_as_the_callers_own_objects(
    speaker: Speaker, stream: bool
) -> None:
    with speaking(speaker, window=10**6) as voice:
        history = grow(speaker, 1)
        before = [*history]
        voice.ask(history, stream=stream)
        guarded = voice.speaker.sent(voice.server)
        voice.ask(history, stream=stream, client=voice.bare)
        assert voice.speaker.sent(voice.server) == guarded
        assert all(a is b for a, b in zip(history, before, strict=True))


def test_a_wrapped_client_passes_for_the_bare_one_and_refuses_to_be_pickled(
    speaker: Speaker,
) -> None:
    with speaking(speaker, window=WINDOW) as voice:
        assert isinstance(voice.client, type(voice.bare))
        assert set(dir(voice.bare)) <= set(dir(voice.client))
        assert repr(voice.bare) in repr(voice.client)
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(voice.client)
        with pytest.raises(ullage.ConfigurationError, match="already"):
            ullage.wrap(voice.client)
        with pytest.raises(AttributeError):
            voice.client.nothing  # noqa: B018 - asked for
