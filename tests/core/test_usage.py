"""Usage reports as disjoint buckets, and what is no report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.usage import Usage, as_mapping

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
                "usage",
            ]
        ),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
            lambda inner: st.dictionaries(
                st.sampled_from(["cached_tokens", "reasoning_tokens", "prompt_tokens"]), inner
            ),
            max_leaves=6,
        ),
    ),
    st.sampled_from([None, "openai_chat", "anthropic"]),
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
