"""A request without room for the rules: they give way no more than they must, and come back."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

import ullage
from ullage.storage import open_store

WINDOW = 1_100
RULES = (
    "Never deploy on a Friday.",
    "Always answer in British spelling.",
    "Never call the harbour master after 18:40.",
)


class Talk:
    """A person with three rules, who tells of buoys and lamps and once pastes a long text."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._history: list[Any] = [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "Plan the regatta of Skerry."},
        ]

    def say(self, text: str) -> str:
        """Say something by a guard of its own; return all that is sent."""
        self._history.append({"role": "user", "content": text})
        view = ullage.Guard("gpt-4o", window=WINDOW, store=self._store).prepare(self._history)
        self._history.append({"role": "assistant", "content": "Noted; the plan is longer."})
        return "\n".join(str(message["content"]) for message in view.messages)

    def say_instead(self, text: str) -> str:
        """Say something in the place of the last words."""
        del self._history[-1]
        return self.say(text)

    def begin(self) -> None:
        """Lay down the rules, and tell more than the window holds."""
        for rule in RULES:
            self.say(rule)
        for n in range(30):
            self.say(
                f"The buoy {n} lies at {50 + n} fathoms, as the keeper of mark {n * 3} told us."
            )


def paste(words: int) -> str:
    """Return a question about a text of about twice as many tokens."""
    return "What does this say?\n```\n" + " ".join(f"w{n}" for n in range(words)) + "\n```"


@pytest.mark.parametrize(("words", "rules"), [(380, 3), (430, 3), (450, 2), (465, 1)])
def test_a_block_makes_way_for_a_request_that_would_fit(words: int, rules: int) -> None:
    with closing(open_store("memory:")) as store:
        talk = Talk(store)
        talk.begin()
        sent = talk.say(paste(words))
        assert sum(rule in sent for rule in RULES) >= rules
        assert f"w{words - 1}" in sent


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_rule_that_had_no_room_comes_back_with_the_next_compaction(tmp_path, kind: str) -> None:
    url = "memory:" if kind == "memory" else f"sqlite:{tmp_path / 's.db'}"
    with closing(open_store(url)) as store:
        talk = Talk(store)
        talk.begin()
        sent = talk.say(paste(468))
        assert [rule in sent for rule in RULES].count(False) >= 1
        sent = talk.say("The lamp burns since 1911 by the pier, and needs new oil.")
        assert all(rule in sent for rule in RULES)


def test_a_request_that_never_fits_is_refused_and_costs_no_rule() -> None:
    with closing(open_store("memory:")) as store:
        talk = Talk(store)
        talk.begin()
        with pytest.raises(ullage.ContextTooLargeError):
            talk.say(paste(700))
        sent = talk.say_instead("Go on.")
        assert all(rule in sent for rule in RULES)


def test_a_rule_that_was_taken_back_meanwhile_does_not_come_back() -> None:
    with closing(open_store("memory:")) as store:
        talk = Talk(store)
        talk.begin()
        talk.say(paste(468))
        sent = talk.say("You may call the harbour master after 18:40 from now on.")
        for n in range(30):
            sent = talk.say(f"The lamp {n} burns since {1900 + n} by the pier of mark {n}.")
        assert RULES[2] not in sent
        assert RULES[0] in sent
