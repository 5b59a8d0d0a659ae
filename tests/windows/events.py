"""Events for the ledger, entered by hand: refusals and answers of so many different requests."""

from __future__ import annotations

from typing import Any

from ullage.core.tokens.claim import Claim
from ullage.windows import Question, Resolver


def refuse(asked: Resolver, question: Question, tokens: int, times: int = 2, **more: Any) -> None:
    """Enter refusals of as many different requests."""
    more = {"grounds": "structured", **more}
    for n in range(times):
        asked.record(question, Claim("total", tokens, "refusal", exchange=f"{tokens}.{n}", **more))


def answer(asked: Resolver, question: Question, tokens: int) -> None:
    """Enter an answered prompt of so many tokens."""
    asked.record(question, Claim("total", tokens, "answer", exchange=str(tokens)))
