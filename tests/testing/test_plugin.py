"""The plugin in a run of pytest of its own, with warnings as errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ullage
from ullage import importers
from ullage.testing import assert_lawful, read_transcript

pytest_plugins = ["pytester"]

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
LAWFUL = [
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "Seen."},
]


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """Lend a suite with recorded conversations beside it."""
    folder = pytester.mkdir("recorded")
    (folder / "claude.jsonl").write_bytes(Path(importers.SAMPLE).read_bytes())
    (folder / "chat.jsonl").write_text("".join(json.dumps(one) + "\n" for one in LAWFUL), "utf-8")
    request = {"model": "gpt-4o", "messages": LAWFUL}
    (folder / "request.json").write_text(json.dumps(request), "utf-8")
    return pytester


def run(suite: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    suite.makepyfile(source)
    command = ("-p", "ullage_pytest", "-W", "error", "--strict-markers", *options)
    return suite.runpytest(*command)


def test_a_marked_test_runs_for_each_recorded_conversation(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
        import pytest

        @pytest.mark.ullage_transcripts("recorded/*.jsonl")
        @pytest.mark.ullage_transcripts("recorded/request.json", source="chat")
        def test_it(transcript, assert_lawful, assert_fits):
            assert_lawful(transcript.current, dialect=transcript.dialect)
            assert_fits(transcript.current, window=200_000, dialect=transcript.dialect)
        """,
        "-v",
    )
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines_random(
        [
            "*test_it[[]recorded/chat.jsonl[]] PASSED*",
            "*test_it[[]recorded/claude.jsonl[]] PASSED*",
            "*test_it[[]recorded/request.json[]] PASSED*",
        ]
    )


def test_failures_name_the_message_and_the_law(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
        def test_protocol(ullage_transcript, assert_lawful):
            read = ullage_transcript("recorded/chat.jsonl")
            assert_lawful(read.current[:2])

        def test_fits(ullage_transcript, assert_fits):
            read = ullage_transcript("recorded/request.json")
            assert_fits(read.current, model=read.model, window=5)
        """,
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*law 1 (protocol) is broken by messages[[]1[]]*ullage.repair*",
            "*law 3 (fits) is broken: * tokens in a window of 5*",
            "*messages[[]*[]]: * tokens, *",
        ]
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            '@pytest.mark.ullage_transcripts("nowhere/*.jsonl")\ndef test_it(transcript): ...',
            "*no recorded conversation matches 'nowhere/*.jsonl'*",
        ),
        (
            '@pytest.mark.ullage_transcripts("recorded/*")\ndef test_it(): ...',
            "*test_it is marked ullage_transcripts and has no argument transcript*",
        ),
        ("def test_it(transcript): ...", "*is not marked ullage_transcripts*"),
        (
            'def test_it(ullage_transcript): ullage_transcript("gone.json")',
            "*gone.json*",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(suite: pytest.Pytester, source: str, said: str) -> None:
    result = run(suite, f"import pytest\n{source}")
    assert result.ret != 0
    text = result.stdout.str() + result.stderr.str()
    assert any(part in text for part in (said.strip("*"),)), text


def test_the_marker_is_listed(suite: pytest.Pytester) -> None:
    run(suite, "", "--markers").stdout.fnmatch_lines(["@pytest.mark.ullage_transcripts(*"])


def test_a_run_without_it_loads_nothing_of_ullage(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import sys

        def test_it():
            assert [name for name in sys.modules if name.partition(".")[0] == "ullage"] == []
        """
    )
    command = [sys.executable, "-m", "pytest", "-p", "ullage_pytest", "-q", "-W", "error"]
    ran = subprocess.run([*command, str(suite.path)], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout


LOGS = sorted((Path(__file__).parents[1] / "logs" / "v1").glob("*.ndjson"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_of_our_own_is_read_as_its_model_was_sent_it(path: Path) -> None:
    read = read_transcript(path)
    assert read.source == "ullage"
    assert read.messages == read_transcript(path, source="ullage").messages
    if read.current:
        assert_lawful(read.current, dialect=read.dialect)


def test_who_wrote_a_file_may_be_named() -> None:
    assert read_transcript(importers.SAMPLE, source="claude").source == "claude"
    with pytest.raises(ullage.StoreError):
        read_transcript(importers.SAMPLE, source="ullage")
