"""The error tree: stable codes, and facts as attributes."""

from __future__ import annotations

import pytest

from ullage.core import errors
from ullage.core.errors import (
    ContextTooLargeError,
    ContextWindowUnknown,
    MalformedHistoryError,
    UllageError,
)

CODES = {
    "BusyWriter": "busy_writer",
    "StoreAway": "store_away",
    "CompactionError": "compaction",
    "ConfigurationError": "configuration",
    "ContextTooLargeError": "context_too_large",
    "ContextWindowUnknown": "context_window_unknown",
    "CorruptLog": "corrupt_log",
    "Fenced": "fenced",
    "MalformedHistoryError": "malformed_history",
    "ProviderError": "provider",
    "QueueFull": "queue_full",
    "StoreError": "store",
    "UllageError": "ullage_error",
    "UnknownSession": "unknown_session",
}


def test_every_error_is_of_the_one_tree_and_has_the_code_that_programs_rely_on():
    found = {
        name: value.code
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, UllageError)
    }
    assert found == CODES


def test_a_request_that_is_too_large_carries_tokens_and_bound():
    error = ContextTooLargeError("too large", tokens=9_000, bound=8_192)
    assert (error.tokens, error.bound, str(error)) == (9_000, 8_192, "too large")


def test_a_malformed_history_names_a_position_or_none():
    assert MalformedHistoryError("broken", index=3).index == 3
    assert MalformedHistoryError("no list").index is None


@pytest.mark.parametrize("model", ["qwen3-8b", None])
def test_an_unknown_window_names_the_model_and_the_hint(model: str | None):
    error = ContextWindowUnknown(model, "Set it.")
    assert error.model == model
    assert (model or "this model") in str(error)
    assert str(error).endswith("Set it.")
