"""Guarded requests as spans, read back from the real SDK's own exporter."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from tests.storage.records import checkpoint
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError, ContextTooLargeError, ErrorKind
from ullage.core.guard.events import (
    Answered,
    Compacted,
    ContextPressure,
    Event,
    Notice,
    RecoveryExhausted,
    Refused,
    TruncationDetected,
)
from ullage.core.tokens.gauge import Assessment
from ullage.core.tokens.truncation import Truncation
from ullage.guard.guard import Guard
from ullage.runtime import Runtime
from ullage.telemetry import metrics, otel
from ullage.telemetry.protocol import Listener

PREPARED = ContextPressure(Assessment(True, "warning", 0.85, 850, 1_000, "estimated"), "warning")
REPORTED = replace(
    PREPARED, assessment=replace(PREPARED.assessment, input_tokens=860), phase="reported"
)
USED = Usage(100, cache_read=20, cache_write=5, output=30, reasoning=4)
ANSWERED = Answered(USED, None, "m")
MADE = Compacted(replace(checkpoint("p", 1), tokens_before=1_000, tokens_after=400), True)
AGAIN = Compacted(replace(MADE.checkpoint, trigger="overflow_recovery"), True)
REFUSED = Refused(ErrorKind("input", 1_000, 1_200), "upstream", "m")
CUT = TruncationDetected(Truncation(("short",), 10, 2_000, 10))


class Kept:
    """Spans, and what the SDK exported of them."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.provider = provider
        self.spans = otel.Spans(provider, **options)

    def ended(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def facts(self) -> list[dict[str, Any]]:
        return [dict(span.attributes or {}) for span in self.ended()]


@pytest.fixture
def kept() -> Kept:
    """Return spans of the real SDK; what is under way in this context begins at nothing."""
    otel._UNDER_WAY.set(None)
    return Kept()


def test_a_request_is_a_client_span_with_the_conventions_names(kept: Kept):
    with kept.spans.request("m", provider="ollama", conversation="c", stream=True, max_tokens=9):
        for event in (MADE, PREPARED, REPORTED, ANSWERED):
            kept.spans.record_event(event, "other")
    (span,) = kept.ended()
    assert (span.name, span.kind, span.status.is_ok) == ("chat m", SpanKind.CLIENT, True)
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "ollama",
        "gen_ai.request.model": "m",
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.stream": True,
        "gen_ai.conversation.id": "c",
        "gen_ai.conversation.compacted": True,
        "gen_ai.usage.input_tokens": 125,
        "gen_ai.usage.output_tokens": 34,
        "gen_ai.usage.cache_read.input_tokens": 20,
        "gen_ai.usage.cache_write.input_tokens": 5,
        "gen_ai.usage.reasoning.output_tokens": 4,
        "ullage.context.used": 860,
        "ullage.context.window": 1_000,
        "ullage.context.used_ratio": 0.85,
        "ullage.context.pressure": "warning",
        "ullage.context.reclaimed": 600,
    }


def test_a_span_around_a_request_may_be_told_more_and_may_fail(kept: Kept):
    with kept.spans.request(None) as span:
        kept.spans.on_event(REFUSED)
        kept.spans.on_event(CUT)
        kept.spans.on_event(Notice("a secret sentence"))
        kept.spans.on_event(RecoveryExhausted("a secret sentence"))
        span.note(status=400, response_model=None)
    (made,) = kept.ended()
    assert made.name == "chat"
    assert not made.status.is_ok
    assert dict(made.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "ullage.context.overflowed": "upstream",
        "ullage.context.truncated": True,
        "http.response.status_code": 400,
        "error.type": "context_overflow",
    }


def test_a_fact_that_the_table_lacks_is_refused(kept: Kept):
    with kept.spans.request("m") as span, pytest.raises(KeyError):
        span.note(prompt="text")


def test_an_exception_marks_the_span_by_its_class_and_shows_no_text(kept: Kept):
    with pytest.raises(ValueError, match="sentinel"), kept.spans.request("m"):
        raise ValueError("sentinel")
    (span,) = kept.ended()
    assert dict(span.attributes or {})["error.type"] == "ValueError"
    assert "sentinel" not in span.to_json()
    assert span.events == ()


def test_spans_of_tasks_that_run_at_once_do_not_mix(kept: Kept):
    async def one(model: str, gate: asyncio.Barrier) -> None:
        with kept.spans.request(model):
            await gate.wait()
            kept.spans.record_event(replace(ANSWERED, usage=Usage(len(model))), model)
            await gate.wait()

    async def both() -> None:
        gate = asyncio.Barrier(2)
        await asyncio.gather(one("a", gate), one("bbb", gate))

    asyncio.run(both())
    found = {f["gen_ai.request.model"]: f["gen_ai.usage.input_tokens"] for f in kept.facts()}
    assert found == {"a": 1, "bbb": 3}


@pytest.mark.parametrize(
    ("events", "spans"),
    [
        ([PREPARED, ANSWERED], 1),
        ([MADE, PREPARED, REPORTED, ANSWERED], 1),
        ([PREPARED, REFUSED, AGAIN, PREPARED, ANSWERED], 1),
        ([PREPARED, REFUSED, PREPARED, ANSWERED], 1),
        ([PREPARED, AGAIN, PREPARED, ANSWERED], 1),
        ([PREPARED, REFUSED, RecoveryExhausted("")], 1),
        ([PREPARED, ANSWERED, PREPARED, ANSWERED], 2),
        ([replace(REFUSED, phase="predicted")], 1),
        ([PREPARED, PREPARED, ANSWERED], 1),  # no answer of the first was told
        ([PREPARED], 0),
        ([ANSWERED, CUT, REFUSED, REPORTED, RecoveryExhausted("")], 0),
        ([Notice("x")], 0),
    ],
)
def test_events_alone_make_a_span_of_each_request_whose_end_is_told(
    kept: Kept, events: list[Event], spans: int
):
    for event in events:
        kept.spans.record_event(event, "m")
    assert len(kept.ended()) == spans
    assert all(span.name == "chat m" for span in kept.ended())


def test_a_request_that_failed_before_leaves_nothing_on_the_next_one(kept: Kept):
    for event in (MADE, PREPARED, PREPARED, ANSWERED):
        kept.spans.record_event(event, "m")
    (facts,) = kept.facts()
    assert "gen_ai.conversation.compacted" not in facts


def test_second_names_stand_there_on_request_only(kept: Kept):
    both = Kept(compatible=True)
    for held in (kept, both):
        with held.spans.request("m"):
            held.spans.record_event(PREPARED, "m")
            held.spans.record_event(ANSWERED, "m")
    more = both.facts()[0].keys() - kept.facts()[0].keys()
    assert more == set(otel.COMPATIBLE.values())
    assert both.facts()[0]["gen_ai.usage.cache_creation.input_tokens"] == 5


@dataclass
class Shared:
    """Stands for a runtime."""

    metrics: Listener | None = None


def test_spans_and_metrics_listen_at_one_runtime(kept: Kept):
    host = Shared()
    counted = metrics.enable(host)
    spans = otel.enable(host, kept.provider)
    assert otel.enable(host) is spans
    assert metrics.enable(host) is counted
    assert host.metrics is not None
    for event in (PREPARED, replace(ANSWERED, model="")):
        host.metrics.record_event(event, "m")
    assert counted.unpriced_tokens.value(model="m") == 159
    assert len(kept.ended()) == 1


def test_a_request_is_a_span_where_spans_are_enabled_and_nothing_else_where_not(kept: Kept):
    host = Shared()
    with otel.around(host, "m") as span:
        assert span is None
    metrics.enable(host)
    with otel.around(host, "m") as span:
        assert span is None
    otel.enable(host, kept.provider)
    with otel.around(host, "m", stream=True) as span:
        assert span is not None
        span.note(status=200)
    (facts,) = kept.facts()
    assert facts["http.response.status_code"] == 200
    assert facts["gen_ai.request.stream"] is True


def test_the_requests_of_a_real_guard_are_spans(kept: Kept):
    runtime = Runtime()
    otel.enable(runtime, kept.provider)
    guard = Guard("gpt-4o", window=2_000, runtime=runtime)
    talk = [{"role": "user", "content": f"{n} sentinel " + "lorem ipsum " * 20} for n in range(40)]
    usage = {"prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050}
    guard.call(lambda **_: {"usage": usage, "choices": []}, talk)
    (span,) = kept.ended()
    facts = dict(span.attributes or {})
    assert facts["gen_ai.conversation.compacted"] is True
    assert facts["gen_ai.usage.input_tokens"] == facts["ullage.context.used"] == 1_000
    assert "sentinel" not in span.to_json()
    with pytest.raises(ContextTooLargeError):
        guard.prepare([{"role": "user", "content": "lorem ipsum " * 4_000}])
    assert kept.facts()[1]["error.type"] == "context_overflow"


def alone(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_without_an_sdk_nothing_is_recorded_and_nothing_fails():
    block = "import sys; sys.modules['opentelemetry.sdk'] = None\n"
    use = (
        "from ullage.telemetry import otel\n"
        "with otel.Spans().request('m', stream=True) as span:\n"
        "    span.note(status=200); span.mark_failed('x'); print(span.span.is_recording())"
    )
    assert alone(block + use) == "False"


def test_without_the_api_the_extra_is_named():
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from ullage.telemetry import otel\n"
        "try: otel.Spans()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    assert alone(code).startswith(ConfigurationError.__name__)
    assert "pip install 'ullage[all]'" in alone(code)


def test_the_package_is_loaded_when_spans_are_asked_for():
    code = (
        "import sys; from ullage.telemetry import otel; "
        "print(any(m.startswith('opentelemetry') for m in sys.modules))"
    )
    assert alone(code) == "False"


def test_every_name_of_the_table_is_used_once():
    assert len(set(otel.NAMES.values())) == len(otel.NAMES)
    assert otel.COMPATIBLE.keys() <= otel.NAMES.keys()
    told: Callable[..., Any] = otel.NOTED.get
    assert told(Notice) is None
