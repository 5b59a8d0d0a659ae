"""The table of errors, on its own samples, on the labelled corpus and on recorded bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.errors import ErrorKind
from ullage.core.wire.overflow import CODES, ROWS, STATUSES, Row, classify

RECORDINGS = Path(__file__).parents[2] / "recordings"
CORPUS = [json.loads(line) for line in (RECORDINGS / "overflow.jsonl").read_text().splitlines()]
SIZES = ("input", "total")


def row_id(row: Row) -> str:
    return f"{row.kind}-{row.sample[:32]}"


def case_id(case: dict) -> str:
    return str(case["id"])


def llama(message: str, **fields: Any) -> dict:
    return {"error": {"code": 400, "message": message, **fields}}


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_every_row_reads_its_own_sample_before_any_other_row_does(row: Row):
    assert next(r for r in ROWS if r.pattern.search(row.sample)) is row
    read = classify(400, row.sample)
    assert (read.kind, read.certainty) == (row.kind, row.certainty)


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_every_row_reads_the_numbers_that_it_names(row: Row):
    found = row.pattern.search(row.sample)
    assert found is not None
    read = classify(400, row.sample)
    assert read.limit == (int(found["limit"]) if "limit" in row.pattern.groupindex else None)
    assert read.input_tokens == (int(found["input"]) if "input" in row.pattern.groupindex else None)


@pytest.mark.parametrize("case", [c for c in CORPUS if c["kind"] != "other"], ids=case_id)
def test_an_overflow_of_the_corpus_is_read_exactly(case: dict):
    read = classify(case["status"], case["body"])
    assert (read.kind, read.limit, read.input_tokens) == (
        case["kind"],
        case["limit"],
        case["input"],
    )
    assert read.certainty == "certain"


@pytest.mark.parametrize("case", [c for c in CORPUS if c["kind"] == "other"], ids=case_id)
def test_a_look_alike_of_the_corpus_is_no_overflow(case: dict):
    assert classify(case["status"], case["body"]).kind not in SIZES


@pytest.mark.parametrize("case", CORPUS, ids=case_id)
def test_text_bytes_and_parsed_body_are_read_alike(case: dict):
    body = case["body"]
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = body
    readings = {classify(case["status"], form) for form in (body, body.encode(), parsed)}
    assert len(readings) == 1


def test_the_corpus_names_where_each_body_was_seen():
    assert all(case["seen_in"] for case in CORPUS)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (
            400,
            llama(
                "request (2619 tokens) exceeds the available context size (2048 tokens), try "
                "increasing it",
                type="exceed_context_size_error",
                n_prompt_tokens=2619,
                n_ctx=2048,
            ),
            ErrorKind("input", 2048, 2619),
        ),
        (
            500,
            {
                "error": {
                    "code": 500,
                    "message": "Context size has been exceeded.",
                    "type": "server_error",
                }
            },
            ErrorKind("input"),
        ),
        (
            400,
            llama("Expected 'content' to be a string or an array", type="invalid_request_error"),
            ErrorKind("other"),
        ),
        (503, {"error": {"message": "Loading model", "code": 503}}, ErrorKind("other")),
    ],
)
def test_bodies_recorded_from_llama_cpp_are_read(status: int, body: dict, kind: ErrorKind):
    # from xllamacpp 2026.10.11549: an overflow, a shared pool that ran full, a server still loading
    assert classify(status, body) == kind


def test_an_error_in_any_frame_of_a_stream_is_read():
    error = (
        'data: {"error":{"code":500,"message":"Context size has been exceeded.",'
        '"type":"server_error"}}\n\n'
    )
    delta = 'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
    for stream in (
        error,
        error * 2,
        delta + error,
        f"event: error\n{error}",
        error + "data: [DONE]",
    ):
        assert classify(200, stream) == ErrorKind("input")


def test_what_the_model_says_in_a_stream_is_no_error():
    delta = 'data: {"choices":[{"delta":{"content":"Context size has been exceeded."}}]}\n\n'
    assert classify(200, delta * 2 + "data: [DONE]\n\n") == ErrorKind("other")


@pytest.mark.parametrize("status", sorted(STATUSES))
@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_a_status_of_payment_or_rate_never_means_overflow(status: int, row: Row):
    assert classify(status, row.sample).kind == STATUSES[status]


def test_a_quota_code_tells_429_apart_from_a_rate_limit():
    assert classify(429, {"error": {"code": "insufficient_quota"}}).kind == "quota"
    assert classify(429, {"error": {"code": "rate_limit_exceeded"}}).kind == "rate_limit"
    assert classify(429, {"error": {"code": "context_length_exceeded"}}).kind == "rate_limit"


@pytest.mark.parametrize("code", sorted(CODES))
@pytest.mark.parametrize("name", ["code", "type"])
def test_a_structured_code_is_enough(name: str, code: str):
    assert classify(400, {"error": {name: code, "message": "?"}}) == ErrorKind(CODES[code])


def test_a_code_is_believed_over_a_wording_that_only_looks_likely():
    body = {"error": {"code": "context_length_exceeded", "message": "the prompt is too long"}}
    assert classify(400, body) == ErrorKind("input", certainty="certain")


def test_a_code_is_believed_over_a_wording_of_another_kind():
    body = {"error": {"code": "context_length_exceeded", "message": "see your rate limit"}}
    assert classify(400, body) == ErrorKind("input")


def test_a_code_that_is_no_text_is_no_code():
    assert classify(400, {"error": {"code": ["context_length_exceeded"]}}).kind == "other"


@pytest.mark.parametrize("n_ctx", [0, -1, True, "2048", None, 2.5])
def test_a_limit_that_is_no_positive_number_is_not_named(n_ctx: Any):
    body = {"error": {"type": "exceed_context_size_error", "n_ctx": n_ctx}}
    assert classify(400, body) == ErrorKind("input")


def test_a_total_with_no_output_asked_for_is_an_input():
    text = (
        "This model's maximum context length is 100 tokens. However, you requested 120 tokens "
        "(120 in the messages, 0 in the completion)."
    )
    assert classify(400, text) == ErrorKind("input", 100, 120)


def test_json_inside_strings_is_opened():
    inner = json.dumps({"error": {"code": "context_length_exceeded", "message": "?"}})
    body = {"error": {"message": "Provider returned error", "metadata": {"raw": inner}}}
    assert classify(400, json.dumps(body)).kind == "input"


def test_a_bare_sentence_and_no_body_are_read():
    assert classify(None, "Context size has been exceeded.").kind == "input"
    assert classify(None, "") == classify(500, None) == ErrorKind("other")
    assert classify(400, "{not json: prompt is too long").certainty == "likely"


def test_a_number_with_thousands_of_digits_names_no_limit():
    digits = "9" * 5_000
    text = f"configured limit of {digits} tokens. Your messages resulted in 7 tokens"
    assert classify(400, text) == ErrorKind("input", None, 7)


def test_a_body_nested_without_end_is_other():
    assert classify(400, '{"error":' * 100_000).kind == "other"
    body: Any = "prompt is too long"
    for _ in range(20):
        body = {"error": body}
    assert classify(400, body).kind == "other"


@pytest.mark.timeout(30)  # a pattern that backtracks would take hours
def test_a_megabyte_of_look_alike_text_is_read_in_linear_time():
    assert classify(400, "prompt context length " * 50_000).kind == "other"


@given(
    st.one_of(st.none(), st.integers(100, 599)),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.binary()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.one_of(st.sampled_from(["error", "message", "type", "code"]), st.text()),
                inner,
                max_size=4,
            ),
        ),
        max_leaves=10,
    ),
)
def test_any_body_is_read_without_an_error(status: int | None, body: Any):
    assert isinstance(classify(status, body, headers={"retry-after": "1"}), ErrorKind)
