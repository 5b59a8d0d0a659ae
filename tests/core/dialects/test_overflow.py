"""The table of errors, on its own samples, on the labelled corpus and on bodies kept apart from it.

The recordings have four sets: `corpus` (what the table was written for), `hold-out` (half of it
look-alikes, many from public issues), `second` and `third` (made up when those before were
read). What was read of each before the table was changed for it: docs/design/overflow.md.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.dialects.overflow import (
    ABSENT,
    STATUSES,
    classify,
    doubt_quoted,
    match_wording,
)
from ullage.core.dialects.wordings import CODES, ROWS, SERVER_STATE, Wording
from ullage.core.errors import ErrorKind

RECORDINGS = Path(__file__).parents[2] / "recordings"
CASES = [
    json.loads(line) for line in (RECORDINGS / "overflow.jsonl").read_text("utf-8").splitlines()
]
SIZES = ("input", "total")
LIKELY = {"cerebras-nobody", "second-11", "third-04", "third-20"}
"""Overflows that no words make certain: no body at all; a conversation that is too long."""
TAKEN_FOR_LIKELY = {"second-35"}
"""Look-alikes that are read as a likely overflow: a prompt that exceeds another thing."""


def row_id(row: Wording) -> str:
    return f"{row.kind}-{row.sample[:32]}"


def case_id(case: dict) -> str:
    return str(case["id"])


def read(case: dict) -> ErrorKind:
    return classify(case["status"], case["body"], headers=case.get("headers"))


def llama(message: str, **fields: Any) -> dict:
    return {"error": {"code": 400, "message": message, **fields}}


# ── the table ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_every_row_reads_its_own_sample_before_any_other_row_does(row: Wording):
    assert next(r for r in ROWS if r.pattern.search(row.sample)) is row
    said = classify(400, row.sample)
    assert (said.kind, said.certainty) == (row.kind, row.certainty)


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_every_row_reads_the_numbers_that_it_names(row: Wording):
    found = row.pattern.search(row.sample)
    assert found is not None
    named = {name: int(digits) for name, digits in found.groupdict().items() if digits}
    said = classify(400, row.sample)
    assert said.limit == named.get("limit")
    assert said.input_tokens == (
        named["input"] + named.get("more", 0) if "input" in named else None
    )


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_no_row_can_be_left_out(row: Wording):
    others = [other for other in ROWS if other is not row]
    assert match_wording([row.sample], others) != match_wording([row.sample])


def test_what_is_likely_is_asked_last():
    certainties = [row.certainty for row in ROWS]
    assert certainties == sorted(certainties)


# ── recorded bodies ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", [c for c in CASES if c["kind"] in SIZES], ids=case_id)
def test_an_overflow_is_read_exactly(case: dict):
    said = read(case)
    assert (said.kind, said.limit, said.input_tokens) == (
        case["kind"],
        case["limit"],
        case["input"],
    )
    assert said.certainty == ("likely" if case["id"] in LIKELY else "certain")


@pytest.mark.parametrize("case", [c for c in CASES if c["kind"] not in SIZES], ids=case_id)
def test_a_look_alike_is_no_overflow(case: dict):
    said = read(case)
    assert said.input_tokens is None
    if case["id"] in TAKEN_FOR_LIKELY:
        assert (said.kind, said.certainty) == ("input", "likely")
    elif case["set"] == "corpus":  # labelled by what it is not
        assert said.kind not in SIZES
    else:
        assert said.kind == {"server_state": SERVER_STATE}.get(case["kind"], case["kind"])


@pytest.mark.parametrize(
    ("chosen", "least"),
    [("corpus", 0.95), ("hold-out", 0.95), ("second", 0.95), ("third", 0.95)],
)
def test_hardly_an_overflow_is_missed_and_no_look_alike_is_taken_for_one(chosen: str, least: float):
    cases = [case for case in CASES if case["set"] == chosen]
    overflows = [case for case in cases if case["kind"] in SIZES]
    missed = [case["id"] for case in overflows if read(case).kind not in SIZES]
    taken = [
        case["id"]
        for case in cases
        if case["kind"] not in SIZES
        and read(case).kind in SIZES
        and read(case).certainty == "certain"
    ]
    assert 1 - len(missed) / len(overflows) >= least, f"missed of {chosen}: {missed}"
    assert not taken


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("openai-quota", "quota"),
        ("gemini-quota", "quota"),
        ("moonshot-quota", "quota"),
        ("moonshot-tpm", "rate_limit"),
        ("openai-tpm", "rate_limit"),
        ("groq-tpm-413", "rate_limit"),
        ("bedrock-throttle", "rate_limit"),
        ("anthropic-bytes", "bytes"),
        ("gemini-payload", "bytes"),
        ("nginx-413", "bytes"),
        ("anthropic-image", "media"),
        ("anthropic-image-dims", "media"),
        ("openai-maxtok", "output_cap"),
        ("dashscope-maxtok", "output_cap"),
        ("tgi-maxnew", "output_cap"),
        ("switchyard-outcap", "output_cap"),
        ("copilot-limit-0", "other"),
        ("llamacpp-batch", "other"),
    ],
)
def test_a_look_alike_of_the_corpus_is_named_for_what_it_is(name: str, kind: str):
    assert read(next(case for case in CASES if case["id"] == name)).kind == kind


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_text_bytes_and_parsed_body_are_read_alike(case: dict):
    body = case["body"]
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = body
    forms = (body, body.encode(), bytearray(body.encode()), parsed)
    assert len({read({**case, "body": form}) for form in forms}) == 1


def test_the_recordings_name_where_each_body_was_seen_and_are_told_apart():
    assert all(case["seen_in"] for case in CASES)
    assert Counter(case["set"] for case in CASES)["corpus"] == 91
    assert len({case["id"] for case in CASES}) == len(CASES)


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


# ── statuses, codes, headers ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", sorted(STATUSES))
@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_a_status_of_payment_or_rate_never_means_overflow(status: int, row: Wording):
    kind = "quota" if row.kind == "quota" else STATUSES[status]
    assert classify(status, row.sample).kind == kind


def test_a_quota_code_tells_429_apart_from_a_rate_limit():
    assert classify(429, {"error": {"code": "insufficient_quota"}}).kind == "quota"
    assert classify(429, {"error": {"code": "rate_limit_exceeded"}}).kind == "rate_limit"
    assert classify(429, {"error": {"code": "context_length_exceeded"}}).kind == "rate_limit"
    words = {"code": "rate_limit_exceeded", "message": "see your quota"}
    assert classify(429, {"error": words}).kind == "rate_limit"


def test_a_quota_that_names_a_minute_in_its_details_is_a_rate_limit():
    details = [{"violations": [{"quotaId": "InputTokensPerModelPerMinute-FreeTier"}]}]
    body = {"error": {"message": "You exceeded your current quota.", "details": details}}
    assert classify(429, body).kind == "rate_limit"
    assert classify(429, {"error": {"message": body["error"]["message"]}}).kind == "quota"


@pytest.mark.parametrize("code", sorted(CODES))
@pytest.mark.parametrize("name", ["code", "type", "__type", "Code"])
def test_a_structured_code_is_enough(name: str, code: str):
    for spelling in (code, code.upper()):
        assert classify(400, {"error": {name: spelling, "message": "?"}}) == ErrorKind(CODES[code])


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


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry-After": "7"},
        {"x-ratelimit-remaining-tokens": "0"},
        {"anthropic-ratelimit-input-tokens-remaining": " 0 "},
    ],
)
def test_headers_turn_what_is_only_likely_into_a_rate_limit(headers: dict):
    assert classify(400, "the prompt is too long", headers=headers).kind == "rate_limit"
    certain = "Your input exceeds the context window of this model."
    assert classify(400, certain, headers=headers).kind == "input"


def test_headers_that_have_something_left_change_nothing():
    headers = {"x-ratelimit-remaining-tokens": "100", "x-ratelimit-limit-tokens": "0"}
    assert classify(400, "the prompt is too long", headers=headers).kind == "input"


def test_a_used_up_rate_limit_is_read_without_any_words():
    assert classify(503, "", headers={"x-ratelimit-remaining": "0"}).kind == "rate_limit"
    assert classify(503, "", headers={"retry-after": "5"}).kind == "other"


@pytest.mark.parametrize("status", sorted(ABSENT))
def test_a_likely_wording_means_nothing_where_something_else_was_refused(status: int):
    assert classify(status, "the prompt is too long").kind == "other"
    assert classify(status, "Context size has been exceeded.").kind == "input"


def test_an_empty_400_is_likely_an_overflow_and_an_unknown_body_is_nothing():
    for empty in ("", b"", " \n"):
        assert classify(400, empty) == ErrorKind("input", certainty="likely")
        assert classify(413, empty) == ErrorKind("bytes")
        assert classify(500, empty) == classify(None, empty) == ErrorKind("other")
    assert classify(400, None) == classify(400, {}) == ErrorKind("other")


# ── shapes of bodies ────────────────────────────────────────────────────────────────────────────

SENTENCE = "Prompt has 140,000 tokens, but the configured context size is 131,072 tokens"


@pytest.mark.parametrize(
    "body",
    [
        SENTENCE,
        {"error": SENTENCE},
        {"message": SENTENCE},
        {"Message": SENTENCE},
        {"detail": SENTENCE},
        {"detail": [{"loc": ["body"], "msg": SENTENCE}]},
        {"error": {"message": json.dumps({"error": {"message": SENTENCE}})}},
        {"error": {"message": "upstream", "metadata": {"raw": json.dumps({"detail": SENTENCE})}}},
        [{"error": {"message": SENTENCE}}],
        {"type": "error", "error": {"type": "invalid_request_error", "message": SENTENCE}},
        {"type": "response.failed", "response": {"error": {"message": SENTENCE}}},
        {"Error": {"Code": "ValidationException", "Message": SENTENCE}},
        {"error": {"innererror": {"message": SENTENCE}}},
        json.dumps(json.dumps({"error": SENTENCE})),
        f"<html><body><h1>Bad Request</h1><p>{SENTENCE}</p></body></html>",
        f"Error code: 400 - {{'error': {{'message': '{SENTENCE}', 'code': None}}}}",
        f"400 {json.dumps({'error': {'message': SENTENCE}})}",
        f"event: error\ndata: {json.dumps({'error': {'message': SENTENCE}})}\n\n",
        f"data: {json.dumps({'error': {'message': SENTENCE}})}\r\n\r\ndata: [DONE]\r\n\r\n",
    ],
)
def test_a_sentence_is_found_in_every_shape_that_bodies_have(body: Any):
    assert classify(200, body) == ErrorKind("input", 131072, 140000)


def test_a_code_inside_a_sentence_is_read():
    inner = json.dumps({"error": {"type": "exceed_context_size_error", "n_ctx": 8, "code": 400}})
    assert classify(None, f"Error: {inner} (request 7)") == ErrorKind("input", 8)
    assert classify(None, 'Error: {"error": broken') == ErrorKind("other")


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
        delta * 1000 + error,
        error + delta * 1000,
        f"event: error\n{error}",
        error + "data: [DONE]",
    ):
        assert classify(200, stream) == ErrorKind("input")


def test_what_the_model_says_is_no_error():
    delta = 'data: {"choices":[{"delta":{"content":"Context size has been exceeded."}}]}\n\n'
    assert classify(200, delta * 2 + "data: [DONE]\n\n") == ErrorKind("other")
    said = {"model": "m", "response": "Context size has been exceeded.", "done": True}
    assert classify(200, said) == classify(200, json.dumps(said)) == ErrorKind("other")


# ── numbers ─────────────────────────────────────────────────────────────────────────────────────


def test_a_total_with_no_output_asked_for_is_an_input():
    text = (
        "This model's maximum context length is 100 tokens. However, you requested 120 tokens "
        "(120 in the messages, 0 in the completion)."
    )
    assert classify(400, text) == ErrorKind("input", 100, 120)


def test_a_total_whose_input_alone_is_too_large_is_an_input():
    text = "input length and `max_tokens` exceed context limit: {} + 10 > 100"
    assert classify(400, text.format(101)) == ErrorKind("input", 100, 101)
    assert classify(400, text.format(100)) == ErrorKind("total", 100, 100)


@pytest.mark.parametrize("separator", ["", ",", "_", "'", "\u00a0", "\u202f", "\u2019"])
def test_separators_of_thousands_are_read(separator: str):
    text = f"prompt is too long: 1{separator}234{separator}567 tokens > 200{separator}000 maximum"
    assert classify(400, text) == ErrorKind("input", 200_000, 1_234_567)


def test_a_rounded_limit_is_no_number():
    text = "prompt is too long: 140000 tokens > 128k maximum"
    assert classify(400, text) == ErrorKind("input", None, 140_000)


def test_a_range_is_not_one_number():
    text = "Range of input length should be [1,983]"
    assert classify(400, text) == ErrorKind("input", 983)


def test_a_number_with_thousands_of_digits_names_no_limit():
    digits = "9" * 5_000
    text = f"configured limit of {digits} tokens. Your messages resulted in 7 tokens"
    assert classify(400, text) == ErrorKind("input", None, 7)


def test_the_number_in_brackets_of_minimax_is_no_window():
    said = classify(400, "invalid params, context window exceeds limit (2013)")
    assert said == ErrorKind("input")


# ── hostile input ───────────────────────────────────────────────────────────────────────────────


def test_a_body_nested_without_end_is_other():
    assert classify(400, '{"error":' * 100_000).kind == "other"
    assert classify(400, "[" * 1_000_000).kind == "other"
    body: Any = "prompt is too long"
    for _ in range(20):
        body = {"error": body}
    assert classify(400, body).kind == "other"


@pytest.mark.timeout(30)  # a pattern that backtracks would take hours
@pytest.mark.parametrize(
    "piece",
    [
        "9",
        " ",
        "1,234",
        "prompt context length ",
        "tokens 1 ",
        "input (1 ",
        "max_tokens ",
        "image ",
        "输入",
        '{"a',
        'data: {"error":{"message":"x"}}\n',
    ],
)
def test_a_megabyte_of_anything_is_read_in_linear_time(piece: str):
    classify(500, piece * (1_000_000 // len(piece)))


def test_what_is_said_at_the_end_of_a_long_text_is_read():
    assert classify(400, "line\n" * 100_000 + "Context size has been exceeded.").kind == "input"


BODIES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(
                st.sampled_from(["error", "message", "type", "code", "detail", "n_ctx"]), st.text()
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=10,
)


@given(st.one_of(st.none(), st.integers(100, 599)), BODIES)
def test_any_body_is_read_without_an_error(status: int | None, body: Any):
    assert isinstance(classify(status, body, headers={"retry-after": "1"}), ErrorKind)


@given(
    st.lists(
        st.sampled_from(
            [word for row in ROWS for word in row.sample.split()] + ["?", "0", "{", '"', "\n"]
        ),
        max_size=40,
    )
)
def test_any_shuffle_of_the_tables_words_is_read_without_an_error(words: list[str]):
    said = classify(400, " ".join(words))
    assert said.limit is None or said.limit > 0


class Said:
    """A message of an SDK: an object with fields."""

    def __init__(self, text: str) -> None:
        self.content = [{"type": "text", "text": text}]


LIE = "This model's maximum context length is 1 tokens. However, you requested 9 tokens"


@pytest.mark.parametrize(
    "request_",
    [
        [{"role": "user", "content": LIE}],
        [{LIE: 3}],
        [Said(f"she wrote: {LIE.upper()}")],
        [(["", (LIE.replace(" ", "\n"),)], 7, None)],
        [{"a": LIE.replace("'", "\\'")}],
    ],
)
def test_words_that_stand_in_the_request_prove_no_limit(request_: list[Any]) -> None:
    read = classify(400, {"error": {"message": f"unknown field: {LIE}"}})
    assert (read.kind, read.limit, read.certainty) == ("input", 1, "certain")
    doubted = doubt_quoted(read, request_)
    assert (doubted.kind, doubted.limit, doubted.input_tokens) == ("input", None, None)
    assert doubted.certainty == "likely"
    assert doubt_quoted(read, [{"role": "user", "content": "hello"}]) is read


def test_a_law_of_a_model_is_not_taken_from_words_of_the_request() -> None:
    text = "roles must alternate between user and assistant"
    read = ErrorKind("malformed_history", about="alternation", said=text)
    assert doubt_quoted(read, [{"content": text}]) == ErrorKind("other", certainty="likely")
    assert doubt_quoted(ErrorKind("other", said="a"), ["a"]).kind == "other"


def test_of_a_long_error_its_beginning_and_its_end_are_read() -> None:
    said = LIE.replace("is 1", "is 4096").replace("requested 9", "requested 9000")
    for text in (said + "x" * 100_000, "x " * 50_000 + said):
        assert classify(400, text).limit == 4_096
