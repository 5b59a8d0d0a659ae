"""Claims resolve to one window or to honest unknown; nothing lowers or raises it unsaid."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ullage.core.errors import ContextWindowUnknown
from ullage.core.tokens.claim import (
    FORGET,
    LEARNED,
    RANKS,
    SMALLEST,
    Claim,
    Kind,
    Source,
    acceptable,
)
from ullage.core.tokens.window import Window, resolve

CLAIMS = st.lists(
    st.builds(
        Claim,
        st.sampled_from(get_args(Kind)),
        st.integers(-1, 300_000),
        st.sampled_from(get_args(Source)),
        st.sampled_from(["", "http://127.0.0.1:8080"]),
    ),
    max_size=6,
)


def tokens(*claims: Claim) -> int | None:
    return resolve(claims).input_tokens


# ── what is believed ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [0, -1, True, 2048.0, "2048", None], ids=repr)
def test_a_claim_that_is_no_positive_whole_number_is_refused(number: Any):
    for source in get_args(Source):
        assert not acceptable(Claim("total", number, source))


@pytest.mark.parametrize(
    ("kind", "source", "believed"),
    [
        ("total", "override", True),
        ("allocated", "probe", True),
        ("input", "refusal", True),
        ("output", "listing", True),
        ("total", "probe", False),
        ("total", "listing", False),
        ("input", "table", False),
        ("trained", "probe", False),
    ],
)
def test_a_tiny_claim_is_believed_of_operators_and_local_servers_only(
    kind: Kind, source: Source, believed: bool
):
    assert acceptable(Claim(kind, SMALLEST - 1, source)) == believed
    assert acceptable(Claim(kind, SMALLEST, source))


# ── laws ────────────────────────────────────────────────────────────────────────────────────────


@given(CLAIMS)
@example([Claim("total", 1024, "listing"), Claim("output", 1025, "answer")])
def test_a_bound_is_always_a_number_that_somebody_claimed(claims: list):
    window = resolve(claims)
    believed = {c.tokens for c in claims if acceptable(c) and c.kind != "output"}
    published = {c.tokens for c in claims if acceptable(c) and c.kind != "output"} - {
        c.tokens for c in claims if c.source in LEARNED
    }
    assert window.known or not published
    assert window.input_tokens is None or window.input_tokens in believed
    assert all(acceptable(c) for c in window.claims)


@given(CLAIMS, st.randoms(use_true_random=False))
def test_the_order_of_claims_does_not_change_the_bound(claims: list, random: Any):
    shuffled = list(claims)
    random.shuffle(shuffled)
    one, other = resolve(claims), resolve(shuffled)
    assert (one.input_tokens, one.total_tokens, one.output_tokens) == (
        other.input_tokens,
        other.total_tokens,
        other.output_tokens,
    )


@given(CLAIMS, st.integers(1, 300_000))
def test_a_learned_ceiling_never_raises_a_known_window(claims: list, limit: int):
    claims = [c for c in claims if c.source != "answer"]
    before = resolve(claims).input_tokens
    one, two = (Claim("total", limit, "refusal", exchange=e, grounds="structured") for e in "ab")
    after = tokens(*claims, one, two)
    assert after == (limit if before is None else min(before, limit))


@given(CLAIMS)
def test_the_input_bound_never_exceeds_the_total(claims: list):
    window = resolve(claims)
    if window.known and window.total_tokens is not None:
        assert window.tokens() <= window.total_tokens


@given(CLAIMS)
def test_the_winner_is_of_the_best_rank_or_a_cap(claims: list):
    window = resolve(claims)
    if window.source in ("listing", "table"):
        better = RANKS[: RANKS.index(window.source)]
        bounds = [c for c in window.claims if c.kind not in ("output", "trained")]
        assert window.kind == "trained" or not [c for c in bounds if c.source in better]


# ── the cases of the window page ────────────────────────────────────────────────────────────────


def test_the_400k_family_takes_272k_of_input():
    window = resolve([Claim("total", 400_000, "table"), Claim("input", 272_000, "table")])
    assert (window.input_tokens, window.total_tokens, window.kind) == (272_000, 400_000, "input")


def test_an_input_limit_without_a_total_leaves_the_total_unknown():
    assert resolve([Claim("input", 272_000, "table")]).total_tokens is None


def test_two_claims_in_conflict_resolve_to_the_smaller_and_both_are_shown():
    window = resolve(
        [Claim("total", 131_072, "table", "litellm"), Claim("total", 128_000, "table", "genai")],
        model="m",
    )
    assert window.tokens() == 128_000
    assert window.explain().splitlines() == [
        "m: 128,000 tokens of input, total window from genai",
        "  - 131,072 tokens, total, from litellm",
        "  * 128,000 tokens, total, from genai",
    ]


def test_an_override_beats_listing_and_table_both_ways():
    listed = Claim("total", 128_000, "listing"), Claim("total", 64_000, "table")
    assert tokens(Claim("policy", 1_000_000, "override"), *listed) == 1_000_000
    assert tokens(Claim("policy", 512, "override"), *listed) == 512


def test_a_smaller_allocated_window_caps_an_override_with_one_warning():
    override = Claim("policy", 32_000, "override")
    window = resolve(
        [
            override,
            Claim("allocated", 8_192, "probe", "http://h"),
            Claim("allocated", 9_000, "probe"),
        ]
    )
    assert window.tokens() == 8_192
    (warning,) = window.warnings
    assert warning == (
        "the window of 32,000 tokens that you set is capped at 8,192: 8,192 tokens, "
        "allocated, reported by "
        "http://h"
    )
    assert window.explain().endswith(f"  ! {warning}")


def test_a_larger_allocated_window_leaves_an_override_alone():
    window = resolve([Claim("policy", 4_096, "override"), Claim("allocated", 8_192, "probe")])
    assert (window.tokens(), window.warnings) == (4_096, ())


def test_a_learned_ceiling_above_the_trained_window_does_not_raise_it():
    claims = [Claim("trained", 4_096, "probe"), Claim("total", 8_192, "refusal")]
    assert tokens(*claims) == 4_096


def test_a_learned_ceiling_caps_a_listing_without_a_warning():
    window = resolve([Claim("total", 128_000, "listing"), Claim("input", 60_000, "refusal")])
    assert (window.tokens(), window.source, window.warnings) == (60_000, "refusal", ())
    assert window.total_tokens == 128_000


@pytest.mark.parametrize("trained", [2_048, 131_072])
def test_an_allocated_window_beats_the_trained_one_in_both_directions(trained: int):
    claims = [Claim("trained", trained, "probe"), Claim("allocated", 8_192, "probe")]
    assert tokens(*claims) == tokens(*reversed(claims)) == 8_192


def test_the_trained_window_bounds_where_nothing_else_is_known():
    window = resolve([Claim("trained", 32_768, "probe")])
    assert (window.input_tokens, window.kind, window.proven) == (32_768, "trained", False)


def test_a_limit_named_by_an_error_becomes_the_window_of_an_unknown_model():
    window = resolve([Claim("total", 8_192, "refusal", "http://h")])
    assert (window.tokens(), window.proven) == (8_192, True)
    assert window.name_source() == f"total window learned from a refusal of http://h; {FORGET}"


def test_an_output_limit_is_no_window():
    window = resolve([Claim("output", 4_096, "table"), Claim("output", 8_192, "table")])
    assert not window.known
    assert window.output_tokens == 4_096


@pytest.mark.parametrize(
    ("claim", "proven"),
    [
        (Claim("policy", 9_000, "override"), True),
        (Claim("allocated", 9_000, "probe"), True),
        (Claim("total", 9_000, "refusal"), True),
        (Claim("total", 9_000, "listing"), False),
        (Claim("input", 9_000, "table"), False),
    ],
)
def test_a_bound_is_proven_by_operator_server_or_error_only(claim: Claim, proven: bool):
    assert resolve([claim]).proven == proven


# ── unknown ─────────────────────────────────────────────────────────────────────────────────────


def test_no_claims_resolve_to_unknown_and_never_to_a_number():
    window = resolve([], model="never-heard-of")
    assert window == Window(model="never-heard-of")
    assert not window.known
    assert not window.proven
    assert window.name_source() == "nobody"
    assert "context_window_unknown" in window.explain()
    assert "window=N" in window.explain()


def test_a_demand_for_tokens_of_an_unknown_window_names_the_model_and_the_fix():
    with pytest.raises(ContextWindowUnknown, match="never-heard-of") as caught:
        resolve([], model="never-heard-of").tokens()
    assert caught.value.model == "never-heard-of"
    assert "window=N" in str(caught.value)
    with pytest.raises(ContextWindowUnknown, match="this model"):
        Window().tokens()


def test_a_window_whose_claim_is_lost_still_names_the_source():
    assert Window(100, source="probe").name_source() == "window reported by the server"


def test_a_claim_says_what_by_whom_where_and_its_note():
    claim = Claim("allocated", 2_048, "probe", "http://h", note="4 slots")
    assert claim.sentence() == "2,048 tokens, allocated, reported by http://h (4 slots)"
    assert (
        Claim("policy", 9, "override").sentence() == "9 tokens, policy, set by --window or window="
    )


@pytest.mark.parametrize(
    ("at", "where", "ending"),
    [
        (0.0, "http://h", "listed by http://h"),
        (86_400.0, "http://h", "listed by http://h, 1970-01-02"),
        (86_400.0, "table of 1970-01-02", "listed by table of 1970-01-02"),
        (1e300, "http://h", "listed by http://h"),
        (float("nan"), "http://h", "listed by http://h"),
        ("yesterday", "http://h", "listed by http://h"),
    ],
)
def test_a_claim_names_its_day_once_and_only_if_it_has_one(at: Any, where: str, ending: str):
    window = resolve([Claim("total", 9_000, "listing", where, at)])
    assert window.explain().endswith(ending)


def test_of_equal_claims_one_that_bounds_the_output_too_sets_the_bound():
    total, prompt = Claim("total", 5_000, "refusal"), Claim("input", 5_000, "refusal")
    for claims in ([total, prompt], [prompt, total]):
        assert (resolve(claims).input_tokens, resolve(claims).total_tokens) == (5_000, 5_000)
