"""Provider listings: each row against a recorded answer; what stands for unknown; who is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faults import FaultServer, html
from tests.windows.listed import (
    KEY,
    LISTINGS,
    NOW,
    PUBLISHING,
    SAID,
    ask,
    asked,
    chat,
    fed,
    first,
    recorded,
    said,
    sync,
    windowless,
)
from ullage.core.tokens.claim import Claim
from ullage.core.tokens.window import resolve
from ullage.transport import HttpResponse as Got
from ullage.transport import Transport
from ullage.windows.listings import MOST_PAGES, Asking, Listed

DOCS = Path(__file__).parents[2] / "docs" / "providers.md"
SILENT = sorted(set(LISTINGS.names()) - set(PUBLISHING))


def awaited(asking: Asking) -> Listed:
    async def drive() -> Listed:
        transport = Transport()
        try:
            what = next(asking)
            for _ in range(60):
                what = asking.send(await transport.aask(what))
        except StopIteration as done:
            listed: Listed = done.value
            return listed
        raise AssertionError(f"still asking: {what.url}")

    return asyncio.run(drive())


@pytest.fixture(params=[sync, awaited])
def drive(request: pytest.FixtureRequest) -> Callable[[Asking], Listed]:
    driver: Callable[[Asking], Listed] = request.param
    return driver


# --- recorded answers -----------------------------------------------------------------------------


def test_every_publishing_row_has_a_recording_and_every_recording_a_row() -> None:
    assert list(SAID) == PUBLISHING


def test_the_29_providers_of_the_page_have_a_row() -> None:
    page = """copilot deepinfra moonshot openrouter anthropic gemini github groq mistral together
    fireworks cohere cerebras xai dashscope ark huggingface vercel novita nebius sambanova baseten
    chutes venice requesty poe cloudflare digitalocean litellm"""
    assert len(page.split()) == 29
    assert set(page.split()) <= set(PUBLISHING)


@pytest.mark.parametrize("provider", PUBLISHING)
def test_a_recorded_listing_gives_exactly_the_documented_claims(drive, provider) -> None:
    model = first(provider)
    with FaultServer(recorded(provider)) as server:
        listed = drive(ask(provider, server, model))
        assert len(asked(server)) == len(set(asked(server)))
    assert said(listed) == SAID[provider]
    assert (listed.complaint, listed.about(model)) == ("", "")
    found = listed.claims(model)
    assert {c.source for c in found} == {"listing"}
    assert all(c.at == NOW and c.where.startswith(server.root_url) for c in found)
    assert all(0.5 <= c.confidence <= 0.9 and "?" not in c.where and c.note for c in found)
    assert resolve(found).known


@pytest.mark.parametrize("provider", PUBLISHING)
def test_a_key_travels_as_the_row_says_or_not_at_all(provider) -> None:
    row = LISTINGS.row(provider)
    assert row is not None
    with FaultServer(recorded(provider)) as server:
        sync(ask(provider, server, first(provider)))
        for request in server.requests:
            sent = {n: v for n, v in request.headers.items() if KEY in v}
            assert (
                sent
                == {
                    "bearer": {"authorization": f"Bearer {KEY}"},
                    "api-key": {"authorization": f"Api-Key {KEY}"},
                    "x-api-key": {"x-api-key": KEY},
                    "x-goog-api-key": {"x-goog-api-key": KEY},
                    "none": {},
                }[row.auth]
            )
            assert KEY not in request.path
            assert row.headers.items() <= request.headers.items()
    assert bool(row.headers) is (provider in ("anthropic", "github"))


# --- what stands for unknown ----------------------------------------------------------------------


def test_nebius_8000_is_no_window_though_other_providers_may_say_so() -> None:
    answer = {"data": [{"id": "m", "context_length": 8000}]}
    windowless(fed("nebius", "m", answer), "m")
    assert said(fed("moonshot", "m", answer)) == {"m": [("total", 8000)]}


def test_mistrals_absent_field_makes_no_number_up_and_a_real_32768_is_believed() -> None:
    listed = fed("mistral", "a", {"data": [{"id": "a"}, {"id": "b", "max_context_length": 32_768}]})
    windowless(listed, "a")
    assert listed.claims("b")[0].tokens == 32_768


def test_copilots_zero_limit_is_unknown_and_leaves_the_other_limit_standing() -> None:
    limits = {"max_context_window_tokens": 128_000, "max_prompt_tokens": 0}
    listed = fed("copilot", "m", {"data": [{"id": "m", "capabilities": {"limits": limits}}]})
    assert said(listed) == {"m": [("total", 128_000)]}


def test_a_text_of_digits_is_a_number_only_where_the_provider_documents_it() -> None:
    cards = [{"id": "m", "context_window": "131072"}]
    assert said(fed("digitalocean", "m", {"models": cards})) == {"m": [("total", 131_072)]}
    windowless(fed("groq", "m", {"data": cards}), "m")
    for text in ("131_072", "²", "-131072", "1" * 13, " 131072"):
        bad = [{"id": "m", "context_window": text}]
        windowless(fed("digitalocean", "m", {"models": bad}), "m")


def test_an_output_limit_alone_is_no_window() -> None:
    listed = fed("groq", "m", {"data": [{"id": "m", "max_completion_tokens": 4096}]})
    assert said(listed) == {"m": [("output", 4096)]}
    windowless(listed, "m")


def test_the_length_of_the_weights_yields_to_any_served_window() -> None:
    (claim,) = fed("together", "m", [{"id": "m", "context_length": 131_072}]).claims("m")
    assert (claim.kind, claim.tokens) == ("trained", 131_072)
    assert claim.note.endswith("of the weights, not of the served model")
    table = Claim("total", 65_536, "table")
    assert resolve([claim, table]).input_tokens == 65_536


# --- routes ---------------------------------------------------------------------------------------


def test_the_least_of_openrouters_endpoints_holds_and_is_said_to() -> None:
    with FaultServer(recorded("openrouter")) as server:
        listed = sync(ask("openrouter", server, "qwen/qwen3-coder:free"))
    window = resolve(listed.claims("qwen/qwen3-coder:free"))
    assert window.input_tokens == 98_304
    least = next(c for c in window.claims if c.tokens == 131_072)
    assert least.note == "context_length; least of 2 routes"


def test_a_mode_of_routing_is_the_same_model_and_a_variant_is_not() -> None:
    answer = {"data": [{"id": "a/b", "context_length": 65_536}]}
    listed = fed("openrouter", None, answer)
    for mode in ("", ":nitro", ":floor", ":online"):
        assert resolve(listed.claims("a/b" + mode)).input_tokens == 65_536
    for variant in (":free", ":extended", "-preview"):
        assert listed.claims("a/b" + variant) == ()
        assert "does not list" in listed.about("a/b" + variant)


def test_routes_that_are_not_live_do_not_count_and_a_named_route_is_itself() -> None:
    with FaultServer(recorded("huggingface")) as server:
        listed = sync(ask("huggingface", server, None))
    tokens = {
        suffix: [c.tokens for c in listed.claims("openai/gpt-oss-120b" + suffix)]
        for suffix in ("", ":fastest", ":groq", ":slow", ":mute")
    }
    assert tokens == {
        "": [128_000], ":fastest": [128_000], ":groq": [131_072], ":slow": [], ":mute": []
    }  # fmt: skip


def test_several_deployments_of_one_alias_are_routes() -> None:
    with FaultServer(recorded("litellm")) as server:
        found = sync(ask("litellm", server, "alias")).claims("alias")
    assert [c.tokens for c in found] == [128_000, 16_384]
    assert "least of 2 routes" in found[0].note


# --- one listing for all its models ---------------------------------------------------------------


def test_one_answer_serves_all_its_models_and_names_what_it_lacks() -> None:
    with FaultServer(recorded("moonshot")) as server:
        listed = sync(ask("moonshot", server, None))
        assert asked(server) == ["/v1/models"]
        assert listed.claims("moonshot-v1-32k")[0].tokens == 32_768
        assert listed.about("kimi") == f"{server.root_url} does not list 'kimi'"
    assert not LISTINGS.wants("moonshot", listed, "kimi")


def test_a_prefix_of_the_provider_is_no_part_of_the_id() -> None:
    listed = fed("gemini", None, {"models": [{"name": "models/g", "inputTokenLimit": 4096}]})
    assert listed.claims("g") == listed.claims("models/g") != ()
    cards = {"result": [{"id": "@cf/meta/l", "context_length": 4096}]}
    listed = fed("cloudflare", None, cards)
    assert listed.claims("meta/l") == listed.claims("@cf/meta/l") != ()


def test_an_alias_that_the_listing_lacks_is_asked_for_once() -> None:
    with FaultServer(recorded("anthropic")) as server:
        listed = sync(ask("anthropic", server, "claude-sonnet-4-5"))
        assert asked(server)[-1] == "/v1/models/claude-sonnet-4-5"
    assert [c.tokens for c in listed.claims("claude-sonnet-4-5")] == [200_000, 64_000]
    assert not LISTINGS.wants("anthropic", listed, "claude-sonnet-4-5")
    assert not LISTINGS.wants("anthropic", listed, "claude-opus-4-8")
    assert LISTINGS.wants("anthropic", listed, "claude-x")


def test_a_kept_listing_is_completed_by_asking_for_one_model_alone(drive) -> None:
    model = "qwen/qwen3-coder:free"
    with FaultServer(recorded("openrouter")) as server:
        kept = drive(ask("openrouter", server, None))
        assert LISTINGS.wants("openrouter", kept, model)
        more = drive(LISTINGS.ask_alone("openrouter", chat("openrouter", server), model, None, NOW))
        assert asked(server)[1:] == [f"/api/v1/models/{model}/endpoints"]
    whole = kept.join(more)
    assert said(whole) == SAID["openrouter"]
    assert not LISTINGS.wants("openrouter", whole, model)
    assert LISTINGS.wants("openrouter", whole, "openai/gpt-4")


def test_a_model_that_is_not_there_is_told_from_one_that_could_not_be_asked() -> None:
    listing = {"data": [{"id": "m", "context_length": 65_536}]}
    absent = fed("openrouter", "m", listing, Got(404))
    assert absent.about("m") == ""
    assert absent.claims("m")[0].tokens == 65_536
    broken = fed("openrouter", "m", listing, Got(500))
    assert broken.claims("m")[0].tokens == 65_536
    assert broken.about("m").endswith("/models/m/endpoints answered HTTP 500")
    assert broken.about("n").endswith("does not list 'n'")
    assert (broken.complaint, absent.complaint) == ("", "")


def test_a_second_listing_is_asked_only_for_what_the_first_lacks() -> None:
    model = "accounts/fireworks/models/qwen2p5-72b"
    with FaultServer(recorded("fireworks")) as server:
        listed = sync(ask("fireworks", server, model))
        assert len(asked(server)) == 3
    assert [c.tokens for c in listed.claims(model)] == [32_768]


def test_cohere_tells_of_one_model_at_a_time() -> None:
    listed = fed("cohere", None, {})
    assert "one model at a time" in listed.complaint
    assert "does not list" in fed("cohere", "m", Got(404)).about("m")


# --- pages ----------------------------------------------------------------------------------------


def test_what_was_read_before_a_page_failed_is_kept_and_the_failure_said() -> None:
    page = {"models": [{"name": "models/a", "inputTokenLimit": 4096}], "nextPageToken": "n"}
    listed = fed("gemini", "a", page, Got(500))
    assert listed.claims("a")[0].tokens == 4096
    assert listed.complaint.endswith("answered HTTP 500")


@pytest.mark.parametrize(
    ("provider", "page"),
    [
        ("anthropic", {"data": [{"id": "a"}], "has_more": True, "last_id": "a"}),
        ("gemini", {"models": [{"name": "a"}], "nextPageToken": "n"}),
        ("dashscope", {"output": {"total": 9_999, "models": [{"model": "a"}]}}),
        ("cloudflare", {"result": [{"id": "a"}], "result_info": {"total_pages": 9_999}}),
        ("digitalocean", {"models": [{"id": "a"}], "links": {"pages": {"next": "http://other/"}}}),
    ],
)
def test_a_listing_without_end_is_given_up(provider, page) -> None:
    listed = fed(provider, None, page)
    assert f"more than {MOST_PAGES} pages" in listed.complaint
    assert list(listed.claims_by_model) == ["a"]


@pytest.mark.parametrize(
    ("provider", "page"),
    [
        ("anthropic", {"data": [{"id": "a"}], "has_more": True, "last_id": None}),
        ("gemini", {"models": [{"name": "a"}], "nextPageToken": 7}),
        ("gemini", {"models": [], "nextPageToken": "n"}),
        ("dashscope", {"output": {"total": "many", "models": [{"model": "a"}]}}),
        ("cloudflare", {"result": [{"id": "a"}], "result_info": None}),
    ],
)
def test_pages_end_where_the_next_one_cannot_be_named(provider, page) -> None:
    assert fed(provider, None, page, Got(500)).complaint == ""


# --- who is asked ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "provider"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://API.OpenAI.com./v1", "openai"),
        ("https://eu.api.openai.com/v1", "openai"),
        ("https://acme.openai.azure.com/openai/deployments/x", "azure"),
        ("https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1", "bedrock"),
        ("https://us-central1-aiplatform.googleapis.com/v1", "vertex"),
        ("https://api.deepseek.com", "deepseek"),
        ("https://api.z.ai/api/paas/v4", "zai"),
        ("https://integrate.api.nvidia.com/v1", "nvidia"),
        ("https://generativelanguage.googleapis.com/v1beta/openai/", "gemini"),
        ("https://api.business.githubcopilot.com", "copilot"),
        ("https://dashscope.aliyuncs.com/compatible-mode/v1", "dashscope"),
        ("https://inference.do-ai.run/v1", "digitalocean"),
        ("https://openrouter.ai:443/api/v1", "openrouter"),
        ("https://openrouter.ai.evil.example/api/v1", None),
        ("https://evilopenai.azure.com.example/v1", None),
        ("https://ec2-1-2-3-4.compute-1.amazonaws.com/v1", None),
        ("https://.githubcopilot.com/v1", None),
        ("http://127.0.0.1:8080/v1", None),
        ("http://localhost:4000", None),
        ("http://[::1", None),
        ("no url", None),
    ],
)
def test_a_provider_is_known_by_its_host_alone(base_url, provider) -> None:
    assert LISTINGS.provider_for(base_url) == provider
    assert LISTINGS.is_hosted(base_url) is (provider is not None)


@pytest.mark.parametrize("provider", SILENT)
def test_who_publishes_nothing_is_not_asked(provider) -> None:
    listed = sync(LISTINGS.ask(provider, None, "m", KEY, NOW))
    row = LISTINGS.row(provider)
    assert row is not None
    assert row.silent
    assert row.silent in listed.complaint


def test_the_silent_are_known() -> None:
    assert {"openai", "azure", "bedrock", "deepseek", "zai", "nvidia"} <= set(SILENT)


@pytest.mark.parametrize("provider", PUBLISHING)
def test_without_a_base_url_the_rows_own_host_is_asked_over_https(provider) -> None:
    row = LISTINGS.row(provider)
    assert row is not None
    if not row.hosts or row.parts:
        listed = sync(LISTINGS.ask(provider, None, "m", KEY, NOW))
        assert "cannot be asked without" in listed.complaint
        return
    for url in (None, *(f"https://{h}/v1" for h in row.hosts if "*" not in h)):
        what = next(LISTINGS.ask(provider, url, "m", KEY, NOW))
        origin = row.at or f"https://{row.hosts[0] if url is None else url.split('/')[2]}"
        assert what.url.startswith(origin + "/")
        assert what.api_key == (None if row.auth == "none" else KEY)
        assert KEY not in repr(what)


def test_a_server_of_ones_own_keeps_its_sub_path() -> None:
    for base_url in ("http://h:4/llm/v1", "http://h:4/llm/v1/", "http://h:4/llm"):
        what = next(LISTINGS.ask("litellm", base_url, "m", KEY, NOW))
        assert what.url == "http://h:4/llm/model/info"


def test_a_model_cannot_lead_the_path_astray() -> None:
    what = next(LISTINGS.ask("cohere", "http://h", "a/b?c=d#e", KEY, NOW))
    assert what.url == "http://h/v1/models/a/b%3Fc%3Dd%23e"
    listed = sync(LISTINGS.ask("cohere", "http://h", "../../keys", KEY, NOW))
    assert "cannot be asked" in listed.about("../../keys")


@pytest.mark.parametrize("base_url", ["http://[::1", "no url", ""])
def test_a_base_url_that_is_none_is_a_complaint(base_url) -> None:
    listed = sync(LISTINGS.ask("groq", base_url, "m", KEY, NOW))
    assert "no base URL" in listed.complaint


def test_a_password_in_the_base_url_is_shown_nowhere() -> None:
    with FaultServer({"*": html(500)}) as server:
        base_url = server.base_url.replace("http://", "http://me:geheim@")
        listed = sync(LISTINGS.ask("groq", base_url, "m", None, NOW))
    assert "geheim" not in repr(listed)


def test_an_unknown_provider_is_a_complaint() -> None:
    assert sync(LISTINGS.ask("nobody", None, "m", None, NOW)).complaint
    assert not LISTINGS.wants("nobody", Listed("nobody"), "m")
    assert LISTINGS.key_env("nobody") == ()
    assert not LISTINGS.publishes("nobody")


def test_every_key_has_a_name_to_look_for_it_under() -> None:
    assert LISTINGS.key_env("openrouter") == ("OPENROUTER_API_KEY",)
    assert [n for n in LISTINGS.names() if not LISTINGS.key_env(n)] == ["codex"]
    for provider in LISTINGS.names():
        assert all(name == name.upper() for name in LISTINGS.key_env(provider))


# --- the rows -------------------------------------------------------------------------------------


def test_no_two_rows_share_a_host() -> None:
    rows = [row for row in map(LISTINGS.row, LISTINGS.names()) if row is not None]
    hosts = [host for row in rows for host in row.hosts]
    assert len(set(hosts)) == len(hosts)


@pytest.mark.parametrize("provider", LISTINGS.names())
def test_a_row_either_asks_or_says_why_not(provider) -> None:
    row = LISTINGS.row(provider)
    assert row is not None
    assert bool(row.sources) != bool(row.silent)
    for source in row.sources:
        assert source.path.startswith("/")
        assert source.fields
        assert not (source.single and source.when == "always")
        assert row.title in DOCS.read_text("utf-8")
        assert source.path.partition("?")[0] in DOCS.read_text("utf-8")
