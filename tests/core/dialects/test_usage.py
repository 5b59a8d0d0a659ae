"""Usage reports as disjoint buckets, and what is no report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.dialects.registry import DIALECTS
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.core.messages.fields import as_mapping

TOKENS = st.integers(0, 10_000_000)
NO_TOKENS = [-1, True, "12", 1.0, [], {}]


@given(TOKENS, TOKENS, TOKENS, TOKENS)
def test_openai_prompts_include_what_was_cached(
    prompt: int, cached: int, output: int, thought: int
):
    report = {
        "prompt_tokens": prompt + cached,
        "completion_tokens": output + thought,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
    usage = Usage.from_report(report)
    assert usage == Usage(prompt, cached, 0, output, thought)
    assert usage.prompt_tokens == report["prompt_tokens"]


@given(TOKENS, TOKENS, TOKENS, TOKENS)
def test_anthropic_prompts_leave_out_what_was_cached(fresh: int, read: int, written: int, out: int):
    report = {
        "input_tokens": fresh,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": out,
    }
    usage = Usage.from_report(report)
    assert usage == Usage(fresh, read, written, out)
    assert usage.prompt_tokens == fresh + read + written


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "prompt_tokens",
                "input_tokens",
                "completion_tokens",
                "output_tokens",
                "cache_read_input_tokens",
                "cache_creation_input_tokens",
                "prompt_tokens_details",
                "output_tokens_details",
                "cache_creation",
                "promptTokenCount",
                "cachedContentTokenCount",
                "prompt_eval_count",
                "timings",
                "usage",
            ]
        ),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
            lambda inner: st.dictionaries(
                st.sampled_from(
                    ["cached_tokens", "reasoning_tokens", "prompt_tokens", "cache_n", "prompt_n"]
                ),
                inner,
            ),
            max_leaves=6,
        ),
    ),
    st.sampled_from([None, *DIALECTS]),
)
def test_whatever_is_reported_no_bucket_is_negative(report: dict, dialect: str | None):
    usage = Usage.from_report(report, dialect=dialect)
    if usage is not None:
        buckets = (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning)
        assert min(buckets) >= 0
        assert not any(isinstance(bucket, bool) for bucket in buckets)


@pytest.mark.parametrize(
    ("report", "prompt"),
    [
        ({"input_tokens": 4, "cache_read_input_tokens": 4571}, 4575),
        ({"input_tokens": 20, "cache_creation_input_tokens": 6278}, 6298),
        ({"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 900}}, 1000),
        ({"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 900}}, 1000),
        ({"prompt_tokens": 30, "timings": {"cache_n": 25}}, 30),
        ({"prompt_tokens": 7, "prompt_tokens_details": None, "completion_tokens": None}, 7),
        ({"prompt_tokens": 0}, 0),
    ],
)
def test_the_pinned_reports_have_the_prompts_of_the_measuring_page(report: dict, prompt: int):
    usage = Usage.from_report(report)
    assert usage is not None
    assert usage.prompt_tokens == prompt


def test_openai_fields_win_where_a_gateway_reports_both_kinds():
    # LiteLLM adds Anthropic's cache fields to an OpenAI report whose prompt includes them
    report = {"prompt_tokens": 1000, "cache_read_input_tokens": 900, "completion_tokens": 5}
    usage = Usage.from_report(report)
    assert usage is not None
    assert usage.prompt_tokens == 1000


def test_a_given_dialect_is_taken_at_its_word():
    report = {"input_tokens": 10, "output_tokens": 2}
    assert Usage.from_report(report, dialect="anthropic") == Usage(10, output=2)
    both = {**report, "cache_read_input_tokens": 90}
    assert Usage.from_report(both, dialect="openai_chat") == Usage(10, output=2)


@pytest.mark.parametrize(
    "report", [None, 7, "usage", [], {}, {"usage": None}, {"usage": 3}, object()]
)
def test_what_is_no_report_is_unknown(report: Any):
    assert Usage.from_report(report) is None


@pytest.mark.parametrize("value", NO_TOKENS, ids=repr)
@pytest.mark.parametrize(
    ("field", "rest"),
    [
        ("prompt_tokens", {}),
        ("completion_tokens", {"prompt_tokens": 10}),
        ("input_tokens", {"cache_read_input_tokens": 1}),
        ("cache_read_input_tokens", {"input_tokens": 10}),
        ("cache_creation_input_tokens", {"input_tokens": 10}),
        ("output_tokens", {"input_tokens": 10, "cache_read_input_tokens": 1}),
    ],
)
def test_a_report_with_a_number_that_is_none_is_unknown_not_zero(
    field: str, rest: dict, value: Any
):
    assert Usage.from_report({**rest, field: value}) is None


@pytest.mark.parametrize(
    "report",
    [
        {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 11}},
        {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": "9"}},
        {"prompt_tokens": 10, "completion_tokens_details": {"reasoning_tokens": -1}},
        {"completion_tokens": 5},
        {"output_tokens": 5, "cache_read_input_tokens": 3},
    ],
)
def test_a_report_that_contradicts_itself_or_lacks_the_prompt_is_unknown(report: dict):
    assert Usage.from_report(report) is None


def test_reasoning_reported_beside_the_output_is_not_taken_off_it():
    details = {"reasoning_tokens": 3}
    report = {
        "prompt_tokens": 10,
        "completion_tokens": 2,
        "completion_tokens_details": details,
    }
    assert Usage.from_report(report) == Usage(10, output=2, reasoning=3)


@dataclass
class Dumps:
    """Stands for an SDK object: all that is known of one is `model_dump`."""

    fields: Any

    def model_dump(self) -> Any:
        return self.fields


def test_objects_of_an_sdk_are_read_by_their_fields():
    inner = Dumps({"cached_tokens": 3})
    response = Dumps({"usage": Dumps({"prompt_tokens": 10, "prompt_tokens_details": inner})})
    assert Usage.from_report(response) == Usage(7, 3)
    assert as_mapping(Dumps([1])) is None


def test_the_official_sdks_usage_is_read():
    types = pytest.importorskip("openai.types")
    report = types.CompletionUsage.model_validate(
        {
            "prompt_tokens": 1000,
            "completion_tokens": 50,
            "total_tokens": 1050,
            "prompt_tokens_details": {"cached_tokens": 900},
        }
    )
    assert Usage.from_report(report) == Usage(100, 900, 0, 50)


# ── the rest of the table ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("report", "usage"),
    [
        # DeepSeek, API reference of chat completions
        (
            {
                "prompt_tokens": 100,
                "prompt_cache_hit_tokens": 64,
                "prompt_cache_miss_tokens": 36,
                "completion_tokens": 5,
            },
            Usage(36, 64, 0, 5),
        ),
        (
            {
                "prompt_tokens": 100,
                "prompt_cache_hit_tokens": 64,
                "prompt_tokens_details": {"cached_tokens": 60},
            },
            Usage(40, 60),
        ),
        # OpenAI, with what was written to the cache
        (
            {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
            },
            Usage(10, 60, 30),
        ),
        (
            {
                "prompt_tokens": 100,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 90},
            },
            Usage(0, 60, 40),
        ),
    ],
)
def test_openais_relatives_are_read_by_their_own_words(report: dict, usage: Usage):
    assert Usage.from_report(report) == usage


@pytest.mark.parametrize(
    ("report", "usage"),
    [
        # Anthropic, with the age of the cache entry only, and with what was thought
        (
            {
                "input_tokens": 4,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 100,
                    "ephemeral_1h_input_tokens": 20,
                },
                "output_tokens": 9,
                "output_tokens_details": {"thinking_tokens": 6},
            },
            Usage(4, 0, 120, 3, 6),
        ),
        (
            {
                "input_tokens": 4,
                "cache_creation_input_tokens": 120,
                "cache_creation": {"ephemeral_5m_input_tokens": 100},
            },
            Usage(4, 0, 120),
        ),
        ({"input_tokens": 4, "cache_creation": None}, Usage(4)),
    ],
)
def test_anthropic_may_tell_what_was_written_by_age_and_what_was_thought(
    report: dict, usage: Usage
):
    assert Usage.from_report(report) == usage


@pytest.mark.parametrize(
    ("report", "usage"),
    [
        # Gemini API reference, UsageMetadata
        (
            {
                "usageMetadata": {
                    "promptTokenCount": 1000,
                    "cachedContentTokenCount": 900,
                    "toolUsePromptTokenCount": 50,
                    "candidatesTokenCount": 20,
                    "thoughtsTokenCount": 300,
                    "totalTokenCount": 1370,
                }
            },
            Usage(150, 900, 0, 20, 300),
        ),
        (
            {"prompt_token_count": 10, "candidates_token_count": 2, "thoughts_token_count": None},
            Usage(10, output=2),
        ),
        (
            {"usage_metadata": {"prompt_token_count": 7, "response_token_count": 3}},
            Usage(7, output=3),
        ),
    ],
)
def test_gemini_counts_tools_and_thoughts_beside_the_prompt_and_the_answer(
    report: dict, usage: Usage
):
    assert Usage.from_report(report) == usage


@pytest.mark.parametrize(
    ("report", "usage"),
    [
        # Ollama's own API
        (
            {
                "model": "m",
                "message": {"role": "assistant", "content": "hi"},
                "done": True,
                "prompt_eval_count": 26,
                "eval_count": 298,
            },
            Usage(26, output=298),
        ),
        ({"prompt_eval_count": 26, "prompt_eval_cached_count": 20}, Usage(6, 20)),
        # a recorded answer of llama.cpp's /completion, which has no usage
        (
            {
                "content": "...",
                "tokens_evaluated": 3,
                "timings": {"cache_n": 2, "prompt_n": 1, "prompt_ms": 7.805, "predicted_n": 8},
            },
            Usage(1, 2, 0, 8),
        ),
        ({"cache_n": 2, "prompt_n": 1, "predicted_n": 8}, Usage(1, 2, 0, 8)),
    ],
)
def test_local_servers_are_read_by_their_own_rule(report: dict, usage: Usage):
    assert Usage.from_report(report) == usage


LLAMACPP_CHAT = {
    "usage": {
        "completion_tokens": 4,
        "prompt_tokens": 22,
        "total_tokens": 26,
        "prompt_tokens_details": {"cached_tokens": 21},
    },
    "timings": {"cache_n": 21, "prompt_n": 1, "prompt_ms": 8.496, "predicted_n": 4},
}
LLAMACPP_RESPONSES = {
    "usage": {
        "input_tokens": 34,
        "output_tokens": 16,
        "total_tokens": 50,
        "input_tokens_details": {"cached_tokens": 3},
    }
}
LLAMACPP_ANTHROPIC = {
    "usage": {"cache_read_input_tokens": 20, "input_tokens": 1, "output_tokens": 14}
}


@pytest.mark.parametrize(
    ("dialect", "answer", "usage"),
    [
        ("openai_chat", LLAMACPP_CHAT, Usage(1, 21, 0, 4)),
        ("openai_responses", LLAMACPP_RESPONSES, Usage(31, 3, 0, 16)),
        ("anthropic", LLAMACPP_ANTHROPIC, Usage(1, 20, 0, 14)),
    ],
)
def test_what_llamacpp_answered_is_read_in_all_three_dialects(
    dialect: str, answer: dict, usage: Usage
):
    assert Usage.from_report(answer) == usage
    assert Usage.from_report(answer, dialect=dialect) == usage
    assert Usage.from_report(answer, dialect="llamacpp") == usage


@pytest.mark.parametrize(
    ("dialect", "report"),
    [
        ("gemini", {"candidatesTokenCount": 5}),
        ("gemini", {"promptTokenCount": 10, "cachedContentTokenCount": 11}),
        ("gemini", {"promptTokenCount": 10, "toolUsePromptTokenCount": -1}),
        ("gemini", {"promptTokenCount": 10, "thoughtsTokenCount": 1.5}),
        ("gemini", {"totalTokenCount": 10}),
        ("ollama", {"eval_count": 298, "done": True}),
        ("ollama", {"prompt_eval_count": None, "eval_count": 298}),
        ("ollama", {"prompt_eval_count": 0, "eval_count": 298}),
        ("ollama", {"prompt_eval_count": 5, "prompt_eval_cached_count": 6}),
        ("ollama", {"prompt_eval_count": 5, "eval_count": True}),
        ("llamacpp", {"timings": {"prompt_n": 1, "predicted_n": 8}}),
        ("llamacpp", {"timings": {"cache_n": 21, "prompt_n": 0, "predicted_n": 0}}),
        ("llamacpp", {"timings": {"cache_n": 1, "predicted_n": 8}}),
        ("llamacpp", {"timings": {"cache_n": 1, "prompt_n": "2"}}),
        ("llamacpp", {"timings": 5}),
        ("llamacpp", {"timings": {}}),
        ("anthropic", {"input_tokens": 4, "cache_creation": 5}),
        ("anthropic", {"input_tokens": 4, "cache_creation": {"ephemeral_1h_input_tokens": -5}}),
        ("anthropic", {"cache_read_input_tokens": 4}),
        ("openai_chat", {"prompt_tokens": 10, "prompt_tokens_details": 5}),
        ("openai_chat", {"prompt_tokens": 10, "completion_tokens_details": "5"}),
        ("openai_chat", {"prompt_tokens": 10, "prompt_cache_hit_tokens": 11}),
        ("openai_chat", {"prompt_tokens": 10, "prompt_cache_hit_tokens": "1"}),
        ("openai_chat", {"prompt_tokens": 9, "prompt_tokens_details": {"cache_write_tokens": -1}}),
        ("openai_responses", {"output_tokens": 10}),
    ],
)
def test_what_is_partial_or_malformed_is_unknown_in_every_dialect(dialect: str, report: dict):
    assert Usage.from_report(report) is None
    assert Usage.from_report(report, dialect=dialect) is None


def test_an_unknown_dialect_is_refused_with_the_known_ones():
    with pytest.raises(ConfigurationError, match=r"'mistral'.*gemini"):
        Usage.from_report({}, dialect="mistral")


@pytest.mark.parametrize(
    "event",
    [
        {"type": "message_start", "message": {"content": [], **LLAMACPP_ANTHROPIC}},
        {"type": "response.completed", "response": {"output": [], **LLAMACPP_RESPONSES}},
        {"choices": [], **LLAMACPP_CHAT},
    ],
    ids=lambda event: str(event.get("type")),
)
def test_a_stream_event_is_read_by_the_response_it_holds(event: dict):
    assert Usage.from_report(event) is not None


# ── streams and sums ────────────────────────────────────────────────────────────────────────────

START = {
    "type": "message_start",
    "message": {"usage": {"cache_read_input_tokens": 20, "input_tokens": 1, "output_tokens": 0}},
}
DELTA = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 10}}


def test_the_two_reports_of_an_anthropic_stream_are_one():
    assert Usage.from_report(DELTA) is None
    assert Usage.merge(START, DELTA) == Usage(1, 20, 0, 10)
    whole = {"input_tokens": 3, "cache_read_input_tokens": 40, "output_tokens": 12}
    assert Usage.merge(START, {"usage": whole}) == Usage(3, 40, 0, 12)
    assert Usage.merge(START, {"usage": {**whole, "input_tokens": None}}) == Usage(1, 40, 0, 12)


def test_one_report_of_a_stream_is_read_as_it_is():
    assert Usage.merge(START, None) == Usage(1, 20)
    assert Usage.merge(None, START, dialect="anthropic") == Usage(1, 20)
    assert Usage.merge(None, DELTA) is None
    assert Usage.merge(None, None) is None
    assert Usage.merge(START, {"usage": {"output_tokens": -1}}) is None


USAGES = st.builds(Usage, TOKENS, TOKENS, TOKENS, TOKENS, TOKENS)


@given(USAGES, USAGES, USAGES)
def test_usages_add_up_in_any_order(one: Usage, two: Usage, three: Usage):
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert one + Usage(0) == one
    assert (one + two).prompt_tokens == one.prompt_tokens + two.prompt_tokens


def test_a_usage_adds_to_nothing_else():
    with pytest.raises(TypeError):
        Usage(1) + 1
