"""Any order of answers, lies, refusals, rewinds, forks, switches and restarts: no lie stays.

Two providers with windows of their own are driven through `Guard.call`. They tell the truth, or
what gateways, filters and templates were seen to say. Whatever they say, the question is always in
what is sent, and the window never falls under a prompt that was answered.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import ullage
from ullage.config.settings import Settings
from ullage.guard.driver import Pause
from ullage.runtime import Runtime

MODEL = "gpt-4o"
WORDS = "alpha beta gamma delta epsilon zeta eta theta"
REPORTS = {
    "true": lambda counted: counted,
    "twice": lambda counted: 3 * counted + 5_000,  # the sum over inner calls
    "uncached": lambda counted: counted // 50 + 1,
    "absurd": lambda _: 10**12,
    "reasoning": lambda counted: counted - min(counted // 10, 200),
}


QUOTED = "the filter refuses: prompt is too long: 900 tokens > 512 maximum"


class Provider:
    """A model server: `window` tokens; it reports and refuses as it is told to."""

    def __init__(self, window: int, *, words: bool) -> None:
        self.window = window
        self.words = words
        self.report = "true"
        self.refusals = 0
        self.answered = 0
        self.filters = 0
        self.seen: list[list[Any]] = []

    def __call__(self, **kwargs: Any) -> dict[str, Any]:
        self.seen.append(list(kwargs["messages"]))
        if self.filters:
            self.filters -= 1
            raise RefusedError(400, "content_filter", QUOTED)
        counted = ullage.count(kwargs["messages"], model=MODEL).tokens
        if counted >= self.window:
            self.refusals += 1
            code = None if self.words else "context_length_exceeded"
            told = f"This model's maximum context length is {self.window} tokens. However, your "
            raise RefusedError(400, code, f"{told}messages resulted in {counted} tokens.")
        self.answered = max(self.answered, counted)
        usage = {"prompt_tokens": REPORTS[self.report](counted), "completion_tokens": 3}
        message = {"role": "assistant", "content": "noted"}
        return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


class RefusedError(Exception):
    """What an SDK raises: a status and the parsed body."""

    def __init__(self, status: int, code: str | None, message: str) -> None:
        self.status_code = status
        self.body = {"message": message, "type": "invalid_request_error", "code": code}
        super().__init__(f"Error code: {status} - {json.dumps({'error': self.body})}")


@dataclass
class Side:
    """A model on a provider of its own, and the guard in front of it."""

    provider: Provider
    told: int | None
    model: str
    guard: ullage.Guard = field(init=False)
    refused: int = 0

    def restart(self, folder: str) -> None:
        """Begin a new process: only what is on disk is known."""
        runtime = Runtime(settings=Settings(cache_dir=folder, offline=True))
        self.guard = ullage.Guard(
            self.model, window=self.told, runtime=runtime, pause=Pause(longest_s=0)
        )
        self.provider.answered = 0  # what one prompt said is not kept
        self.refused = 0


class Ledgers(RuleBasedStateMachine):
    """Conversations with two providers that are not always to be believed."""

    @initialize(
        windows=st.permutations([3_000, 6_000, 200_000]),
        told=st.sampled_from([None, 4_000, 150_000]),
        model=st.sampled_from([MODEL, "unheard-of"]),
        words=st.booleans(),
    )
    def begin(self, windows: list[int], told: int | None, model: str, words: bool) -> None:
        """Set up what holds for the whole run."""
        self.folder = tempfile.TemporaryDirectory()
        self.sides = [
            Side(Provider(windows[0], words=words), told, model),
            Side(Provider(windows[1], words=words), None, "never-heard-of"),
        ]
        self.history: list[dict[str, Any]] = []
        self.branches: list[list[dict[str, Any]]] = []
        self.asked = 0
        self.restart()

    @property
    def provider(self) -> Provider:
        """The provider that is asked now."""
        return self.sides[0].provider

    @property
    def guard(self) -> ullage.Guard:
        """The guard in front of it."""
        return self.sides[0].guard

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    @rule()
    def restart(self) -> None:
        """Begin a new process on both sides."""
        for side in self.sides:
            side.restart(self.folder.name)

    @rule()
    def switch(self) -> None:
        """Go on with the other model, with the same history."""
        self.sides.reverse()

    @rule()
    def fork(self) -> None:
        """Keep the conversation as it is beside what comes."""
        self.branches.append(list(self.history))

    @rule()
    def turn_to_branch(self) -> None:
        """Go on where a fork was made, and keep this one in its place."""
        if self.branches:
            self.branches.insert(0, self.history)
            self.history = self.branches.pop()

    @rule()
    def sample_twice(self) -> None:
        """Send one request twice at the same time, as parallel samples do."""
        asked = [i for i, m in enumerate(self.history) if m["role"] == "user"]
        if asked:
            self.history = self.history[: asked[-1] + 1]
            views = [self.guard.prepare(self.history) for _ in range(2)]
            assert views[0].messages == views[1].messages
            self.send()

    @rule(words=st.integers(1, 900), report=st.sampled_from(sorted(REPORTS)))
    def ask(self, words: int, report: str) -> None:
        """Ask a new question."""
        self.asked += 1
        text = " ".join([f"question {self.asked}:", *(WORDS.split() * words)[:words]])
        self.history = [*self.history, {"role": "user", "content": text}]
        self.provider.report = report
        self.send()

    @rule()
    def ask_again(self) -> None:
        """Draw a second sample of the last question."""
        if self.history:
            self.history = self.history[:-1]
            self.send()

    @rule(back=st.integers(1, 6))
    def go_back(self, back: int) -> None:
        """Take an earlier question up again."""
        asked = [i for i, m in enumerate(self.history) if m["role"] == "user"]
        if asked:
            self.history = self.history[: asked[-min(back, len(asked))] + 1]
            self.send()

    @rule()
    def quote(self) -> None:
        """Let a content filter refuse the next request with a sentence that it quotes."""
        if not self.history:
            return
        self.provider.filters = 2
        before = self.guard.window()
        try:
            self.guard.call(self.provider, self.history[:-1])
        except RefusedError:
            assert not self.guard.window().is_learned or before.is_learned
            assert self.guard.window().input_tokens == before.input_tokens
        self.provider.filters = 0

    def send(self) -> None:
        """Send the history; the question is in it, and the answer follows."""
        question = self.history[-1]
        refusals, before = self.provider.refusals, self.guard.window()
        try:
            answer = self.guard.call(self.provider, self.history)
        except (RefusedError, ullage.ContextTooLargeError):
            # Only what cannot be made to fit: the first and the last question must stay.
            least = ullage.count([self.history[0], question], model=MODEL).tokens
            held = min(self.provider.window, before.input_tokens or self.provider.window)
            assert least > 0.4 * held
            self.history = self.history[:-1]
        else:
            assert self.provider.seen[-1][-1] == question
            self.history = [*self.history, answer["choices"][0]["message"]]
        self.sides[0].refused += self.provider.refusals > refusals

    @invariant()
    def never_falls_under_an_answer(self) -> None:
        """Check what was learned against what the provider truly took."""
        for side in getattr(self, "sides", ()):
            found = side.guard.window()
            if found.is_learned:
                assert found.tokens() >= min(side.provider.answered, side.provider.window)
                assert found.tokens() >= side.provider.window * 0.9

    @invariant()
    def refusals_teach(self) -> None:
        """Check that a true limit is known after three; no sentence beats your own word."""
        for side in getattr(self, "sides", ()):
            if not (side.told and side.provider.words):
                assert side.refused <= 3


TestLedgers = Ledgers.TestCase
TestLedgers.settings = hypothesis_settings(
    max_examples=120, stateful_step_count=25, deadline=None, print_blob=True
)
