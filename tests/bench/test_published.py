"""What others published is read as they meant it, and counted."""

from __future__ import annotations

import pytest

from bench import published
from bench.published import (
    SHARES,
    WAYS,
    Kept,
    measure_cases,
    measure_constraints,
    measure_words,
    read_chats,
    read_rules,
    show,
)

CHATS = """\
# aider chat started at 2024-08-05 19:33:02

> Aider v0.48.0
> Added a.py to the chat

#### why is the pump red
#### and the valve blue

Because of the paint.

```python
x = 1
```

> Tokens: 2k sent
#### ok, paint it green

Done.
"""


def test_recorded_chats_are_read_by_their_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "CHAT", 2)
    (chat,) = read_chats(CHATS)
    assert chat == [
        {"role": "user", "content": "why is the pump red\nand the valve blue"},
        {"role": "assistant", "content": "Because of the paint.\n\n```python\nx = 1\n```"},
    ]


def test_constraints_are_read_and_not_run() -> None:
    source = 'raise SystemExit\nSCS: list[dict] = [{"id": 1, "sc": "Reply in verse."}]\n'
    assert read_rules(source) == ["Reply in verse."]


def test_what_is_kept_is_counted_for_each_way_and_share() -> None:
    turns = [{"role": "user", "content": "Plan the pump. Never paint it red."}]
    turns += [{"role": "assistant", "content": "Well noted, so be it. " * 9}] * 9
    turns += [{"role": "user", "content": "What is next?"}]
    expected = [
        {"check": "contains_normalized", "value": "never PAINT  it red"},
        {"check": "set_match", "values": ["pump", "gondola"]},
        {"check": "forbidden_absent", "value": "red"},
    ]
    case = {
        "template_key": "buried_constraint_v1_3",
        "transcript": {"turns": turns},
        "evaluation_items": [{"expected": each} for each in expected],
    }
    kept: Kept = {}
    measure_cases([case], kept)
    assert {name for _, name, _ in kept} == set(WAYS)
    assert kept["buried constraint", "ullage", 0.3] == [2, 3]
    assert kept["buried constraint", "newest messages", 0.05] == [0, 3]
    assert "| buried constraint | ullage |" in show(kept)


def test_words_and_constraints_are_counted() -> None:
    chat = [
        message
        for n in range(12)
        for message in (
            {"role": "user", "content": f"Look at pump_{n}.py"},
            {"role": "assistant", "content": f"I looked at it, and at pump_{(n + 5) % 12}.py too."},
        )
    ]
    kept: Kept = {}
    measure_constraints([chat], ["Reply in verse only, always."], kept)
    measure_words([chat], kept)
    share = SHARES[-1]
    assert kept["constraint, first", "ullage", share] == [1, 1]
    assert kept["constraint, middle", "newest messages", SHARES[0]] == [0, 1]
    found, of = kept["words that the user takes up", "ullage", share]
    assert 0 <= found <= of
    assert of > 0
