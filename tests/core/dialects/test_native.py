"""What a provider's answer to a request for a compaction is read as."""

from typing import Any

import pytest

from ullage.core.dialects import registry

COMPACTED = {"type": "compaction", "content": "what was said"}
THOUGHT = {"type": "thinking", "thinking": "hm"}


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ([COMPACTED], [COMPACTED]),
        ([THOUGHT, COMPACTED], [COMPACTED]),
        ([THOUGHT], None),
        ([{"type": "compaction", "content": None}], None),
        ([], None),
        (None, None),
    ],
)
def test_anthropic_the_block_of_a_compaction_becomes_a_message(content: Any, kept: Any) -> None:
    native = registry.find("anthropic").native
    assert native is not None
    made = native.read({"content": content})
    assert made == (None if kept is None else {"role": "assistant", "content": kept})
