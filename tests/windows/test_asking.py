"""The resolver with listings, settings, lessons and the disk: who is asked, and how often."""

from __future__ import annotations

import asyncio
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.clock import FakeClock
from tests.support.faults import Answer, FaultServer, html, of_json
from tests.windows.events import answer, refuse
from tests.windows.listed import SAID, recorded
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.claim import UNNAMED
from ullage.core.tokens.window import Window
from ullage.transport import Timeouts, Transport
from ullage.windows import Question, Resolver, ResolverOptions
from ullage.windows.disk import FILE, VERSION, Disk, StoredClaims
from ullage.windows.ledger import TRIAL_S
from ullage.windows.resolver import NEGATIVE_S, POSITIVE_S

LLAMA = "llama-3.3-70b-versatile"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_800_000_000.0)


def resolver(clock: FakeClock, **options: object) -> Resolver:
    return Resolver(Transport(Timeouts(20.0, 5.0)), clock, ResolverOptions(**options))  # type: ignore[arg-type]  # passed on


def groq(server: FaultServer, model: str | None = LLAMA, **more: object) -> Question:
    return Question(model, f"{server.root_url}/openai/v1", provider="groq", **more)  # type: ignore[arg-type]  # passed on


def props(window: int, slots: int) -> Answer:
    return of_json({"default_generation_settings": {"n_ctx": window}, "total_slots": slots})


def bound(window: Window) -> tuple[int | None, str | None]:
    return window.input_tokens, window.source


def test_a_listing_names_the_bound_and_every_model_of_it_is_kept(clock: FakeClock) -> None:
    with FaultServer(recorded("groq")) as server:
        asked = resolver(clock)
        assert bound(asked.window(groq(server))) == (131_072, "listing")
        assert bound(asyncio.run(asked.awindow(groq(server)))) == (131_072, "listing")
        assert asked.models(groq(server, None)) == [(LLAMA, asked.models(groq(server, None))[0][1])]
        assert asyncio.run(asked.amodels(groq(server, None)))[0][0] == LLAMA
        assert len(server.requests) == 1


def test_a_thousand_look_ups_of_one_provider_make_one_request(clock: FakeClock) -> None:
    with FaultServer(recorded("groq")) as server:
        asked = resolver(clock)
        with ThreadPoolExecutor(32) as pool:
            found = set(pool.map(lambda _: asked.window(groq(server)).input_tokens, range(1000)))
        assert found == {131_072}
        assert len(server.requests) == 1


def test_a_thousand_coroutines_make_one_request(clock: FakeClock) -> None:
    with FaultServer(recorded("groq")) as server:
        asked = resolver(clock)

        async def many() -> set[int | None]:
            windows = await asyncio.gather(*(asked.awindow(groq(server)) for _ in range(1000)))
            return {w.input_tokens for w in windows}

        assert asyncio.run(many()) == {131_072}
        assert len(server.requests) == 1


def test_a_failed_listing_is_asked_again_after_the_negative_time(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    path = "/openai/v1/models"
    answers = (html(), *next(iter(recorded("groq").values())))
    with FaultServer({path: answers}) as server, caplog.at_level(logging.WARNING):
        asked = resolver(clock)
        for _ in range(3):
            assert asked.window(groq(server)).source == "table"
        assert (len(server.requests), len(caplog.records)) == (1, 1)
        clock.advance(NEGATIVE_S)
        assert bound(asked.window(groq(server))) == (131_072, "listing")
        clock.advance(POSITIVE_S - 1)
        asked.window(groq(server))
        assert len(server.requests) == 2


def test_a_listing_without_the_model_falls_to_the_table_then_to_unknown(clock: FakeClock) -> None:
    with FaultServer({"/openai/v1/models": of_json({"data": []})}) as server:
        asked = resolver(clock)
        assert asked.window(groq(server)).source == "table"
        assert not asked.window(groq(server, "no-such-model")).known


def test_an_override_asks_nobody(clock: FakeClock) -> None:
    with FaultServer({}) as server:
        found = resolver(clock).window(groq(server, override=5000))
        assert bound(found) == (5000, "override")
        assert server.requests == ()


def test_the_operators_map_overrides_like_an_argument(clock: FakeClock) -> None:
    with FaultServer({}) as server:
        asked = resolver(clock, context_windows={"mine": 7000})
        assert bound(asked.window(Question("mine", server.base_url))) == (7000, "override")
        assert bound(asked.window(Question("mine", override=100))) == (100, "override")
        assert server.requests == ()


def test_offline_asks_nobody_and_reads_the_table(clock: FakeClock) -> None:
    with FaultServer({}) as server:
        asked = resolver(clock, offline=True)
        assert bound(asked.window(Question("gpt-4"))) == (8192, "table")
        assert asked.window(groq(server)).source == "table"
        assert server.requests == ()


def test_a_deployment_has_the_window_of_its_base_model(clock: FakeClock) -> None:
    url = "https://acme.openai.azure.com/openai/v1"
    assert not resolver(clock).window(Question("prod-east", url)).known
    asked = resolver(clock, base_models={"prod-east": "gpt-4o"})
    assert asked.window(Question("prod-east", url)).input_tokens == 128_000


def test_a_known_listing_survives_a_restart(clock: FakeClock, tmp_path: Path) -> None:
    with FaultServer(recorded("groq")) as server:
        resolver(clock, folder=tmp_path).window(groq(server))
        again = resolver(clock, folder=tmp_path)
        assert bound(again.window(groq(server))) == (131_072, "listing")
        assert len(server.requests) == 1
        clock.advance(POSITIVE_S)
        again.window(groq(server))
        assert len(server.requests) == 2


def test_a_repeated_refusal_survives_a_restart_for_its_endpoint_and_model_only(
    clock: FakeClock, tmp_path: Path
) -> None:
    here = Question("gpt-4", "https://api.openai.com/v1")
    refuse(resolver(clock, folder=tmp_path), here, 6000)
    again = resolver(clock, folder=tmp_path)
    assert bound(again.window(here)) == (6000, "refusal")
    assert "repeated" in again.window(here).explain()
    assert bound(again.window(Question("gpt-4"))) == (8192, "table")
    assert again.window(Question("gpt-4o", "https://api.openai.com/v1")).source == "table"
    clock.advance(30 * 24 * 3600.0)
    assert bound(resolver(clock, folder=tmp_path).window(here)) == (8192, "table")


def test_what_one_request_said_is_not_written_and_passes(clock: FakeClock, tmp_path: Path) -> None:
    asked = resolver(clock, folder=tmp_path)
    for _ in range(3):  # the same request again is the same witness
        refuse(asked, Question("gpt-4"), 6000, times=1)
    assert bound(asked.window(Question("gpt-4"))) == (6000, "refusal")
    assert not (tmp_path / FILE).exists()
    clock.advance(600.0)
    assert bound(asked.window(Question("gpt-4"))) == (8192, "table")


def test_a_corrupt_cache_file_is_replaced_and_not_fatal(clock: FakeClock, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{half")
    asked = resolver(clock, folder=tmp_path)
    assert asked.window(Question("gpt-4")).input_tokens == 8192
    refuse(asked, Question("gpt-4"), 6000)
    assert json.loads((tmp_path / FILE).read_text())["version"] == VERSION


def test_two_processes_do_not_lose_each_others_lessons(clock: FakeClock, tmp_path: Path) -> None:
    one, two = resolver(clock, folder=tmp_path), resolver(clock, folder=tmp_path)
    assert one.window(Question("gpt-4")).known
    assert two.window(Question("gpt-4")).known
    refuse(one, Question("gpt-4"), 6000)
    refuse(two, Question("gpt-4o"), 9000)
    fresh = resolver(clock, folder=tmp_path)
    assert fresh.window(Question("gpt-4")).input_tokens == 6000
    assert fresh.window(Question("gpt-4o")).input_tokens == 9000


def test_of_two_bounds_the_one_with_two_witnesses_holds(clock: FakeClock) -> None:
    asked = resolver(clock)
    refuse(asked, Question("gpt-4"), 7000, grounds="words")
    refuse(asked, Question("gpt-4"), 600, times=1, grounds="words")
    assert asked.window(Question("gpt-4")).input_tokens == 7000


def test_a_full_pool_gives_each_slot_its_share_for_ten_minutes(
    clock: FakeClock, tmp_path: Path
) -> None:
    with FaultServer({"/props": props(4096, 4), "/v1/models": of_json({"data": []})}) as server:
        question = Question("m", server.base_url)
        asked = resolver(clock, folder=tmp_path)
        assert asked.window(question).input_tokens == 4096
        refuse(asked, question, 900, note=UNNAMED)
        assert bound(asked.window(question)) == (1024, "contention")
        assert "slots over one pool" in asked.window(question).explain()
        assert not (tmp_path / FILE).exists()
        clock.advance(600.0)
        assert bound(asked.window(question)) == (4096, "probe")


def test_a_probe_is_lowered_by_two_refusals_and_never_by_words(clock: FakeClock) -> None:
    with FaultServer({"/props": props(4096, 4), "/v1/models": of_json({"data": []})}) as server:
        question = Question("m", server.base_url)
        asked = resolver(clock)
        asked.window(question)
        refuse(asked, question, 2048, times=1)
        refuse(asked, question, 1024, times=8, grounds="words")
        assert bound(asked.window(question)) == (4096, "probe")
        refuse(asked, question, 2048)
        assert bound(asked.window(question)) == (2048, "refusal")


def test_a_larger_prompt_that_was_answered_raises_a_listed_bound(clock: FakeClock) -> None:
    asked = resolver(clock)
    answer(asked, Question("gpt-4"), 9000)
    answer(asked, Question("gpt-4"), 8500)
    found = asked.window(Question("gpt-4"))
    assert (found.input_tokens, found.answered) == (9000, 9000)
    assert "was exceeded" in found.explain()


def test_no_refusal_lowers_a_window_under_what_was_answered(clock: FakeClock) -> None:
    asked = resolver(clock)
    refuse(asked, Question("gpt-4"), 5000)
    answer(asked, Question("gpt-4"), 5001)
    assert bound(asked.window(Question("gpt-4"))) == (8192, "table")
    refuse(asked, Question("gpt-4"), 4000, times=8)
    assert bound(asked.window(Question("gpt-4"))) == (8192, "table")


def test_a_trial_is_granted_once_a_minute(clock: FakeClock) -> None:
    asked, question = resolver(clock), Question("gpt-4")
    assert [asked.start_trial(question) for _ in range(3)] == [True, False, False]
    assert asked.start_trial(Question("gpt-4o"))
    clock.advance(TRIAL_S)
    assert asked.start_trial(question)


def test_a_conversation_that_grows_writes_no_file_each_turn(
    clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[StoredClaims] = []
    save = Disk.save

    def count(disk: Disk, kept: StoredClaims) -> None:
        written.append(kept)
        save(disk, kept)

    monkeypatch.setattr(Disk, "save", count)
    asked = resolver(clock, folder=tmp_path)
    for tokens in range(1_000, 101_000, 1_000):
        answer(asked, Question("gpt-4"), tokens)
    assert 0 < len(written) < 25
    assert resolver(clock, folder=tmp_path).window(Question("gpt-4")).answered > 75_000


def test_forgetting_one_question_leaves_the_others(clock: FakeClock, tmp_path: Path) -> None:
    asked = resolver(clock, folder=tmp_path)
    for model in ("gpt-4", "gpt-4o"):
        refuse(asked, Question(model), 5000)
    asked.forget(Question("gpt-4"))
    assert asked.window(Question("gpt-4")).input_tokens == 8192
    assert asked.window(Question("gpt-4o")).input_tokens == 5000
    asked.forget()
    assert asked.window(Question("gpt-4o")).input_tokens == 128_000
    assert not (tmp_path / FILE).exists()


def test_a_model_that_is_listed_alone_is_asked_for_alone(clock: FakeClock) -> None:
    with FaultServer(recorded("openrouter")) as server:
        asked = resolver(clock)
        model = next(iter(SAID["openrouter"]))
        question = Question(model, f"{server.root_url}/api/v1", provider="openrouter")
        found = asked.window(question)
        assert found.source == "listing"
        assert asyncio.run(asked.awindow(question)) == found
        assert len(server.requests) == 2
        later = resolver(clock)
        assert later.models(Question(None, question.base_url, provider="openrouter"))
        assert later.window(question).input_tokens == found.input_tokens
        assert later.window(question) == later.window(question)
        assert len(server.requests) == 4


def test_a_provider_without_rows_borrows_no_number(clock: FakeClock) -> None:
    asked = resolver(clock, offline=True)
    assert not asked.window(Question("gpt-4", provider="novita")).known
    assert asked.window(Question("gpt-4", provider="openai")).input_tokens == 8192


@pytest.mark.parametrize(
    ("name", "said"), [("opnrouter", "did you mean 'openrouter'"), ("x1x2x3", "known are")]
)
def test_a_provider_nobody_knows_is_an_error(clock: FakeClock, name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        resolver(clock).window(Question("gpt-4", provider=name))


def test_a_listing_is_written_to_disk_once(clock: FakeClock, tmp_path: Path) -> None:
    with FaultServer(recorded("groq")) as server:
        asked = resolver(clock, folder=tmp_path)
        asked.window(groq(server))
        (tmp_path / FILE).unlink()
        asked.window(groq(server))
        assert not (tmp_path / FILE).exists()
