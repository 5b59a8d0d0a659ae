"""Everything public pickles and deep-copies, or says why not and what to pickle in its place."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from types import MappingProxyType, ModuleType
from typing import Any

import openai
import pytest

import ullage
from tests.voyage import log_of
from ullage import agent, edits, errors, events
from ullage.core.messages.transcript import Call
from ullage.core.session.instructions import Context
from ullage.core.session.permissions import CallSubject
from ullage.core.tokens.budget import Overrun
from ullage.runtime import Runtime
from ullage.telemetry import metrics

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
ASK = [{"role": "user", "content": "Never touch the pump. " * 3}]
URL = "http://127.0.0.1:9/v1"


def compacted() -> ullage.Compaction:
    return ullage.compact(log_of(40), target_tokens=900, model="gpt-4o")


def guard() -> ullage.Guard:
    return ullage.Guard("gpt-4o", window=3_000, runtime=Runtime())


def told() -> Mapping[type, Any]:
    """Return an event of each kind that there is, real ones where a guard tells them at once."""
    heard: list[Any] = []
    held = ullage.Guard("gpt-4o", window=3_000, runtime=Runtime(), on_event=heard.append)
    held.prepare([*log_of(40), {"role": "tool", "tool_call_id": "nobody's", "content": "x"}])
    kind = ullage.ErrorKind("input", 3_000, 3_100)
    usage = ullage.Usage(3, 1, 0, 2, 0)
    heard += [
        events.OverShare((Overrun("tools", 20, 10),)),
        events.CompactionFailed("nothing_to_compact"),
        events.CompactionFault("call", "read a.py", 3),
        events.CacheBust("expired", 40_000),
        events.SummaryProgress(1, 3),
        events.SummaryFailed("no model there"),
        events.Notice("a word"),
        events.WindowCramped("too small"),
        events.TruncationDetected(ullage.Truncation(("short",), 10, 2_000, 9)),
        events.Refused(kind, "upstream", "gpt-4o"),
        events.Answered(usage, ullage.cost(usage, "gpt-4o"), "gpt-4o"),
        events.RecoveryExhausted("no way"),
    ]
    return {type(event): event for event in heard}


SUBJECT = CallSubject("run", "command", "ls")

VALUES: Mapping[str, Callable[[], Any]] = {
    "Answer": lambda: ullage.Answer("text", ullage.Usage(3), cut=True),
    "Assessment": lambda: ullage.assess(900, 1_000),
    "Claim": lambda: ullage.window("gpt-4o").claims[0],
    "Compaction": compacted,
    "Contents": lambda: ullage.context(log_of(4), model="gpt-4o"),
    "Cost": lambda: ullage.cost(12_000, "gpt-4o"),
    "Count": lambda: ullage.count(log_of(4), model="gpt-4o"),
    "Ended": lambda: agent.Ended("t", "completed", "wine"),
    "ErrorKind": lambda: ullage.classify_error(429, "Rate limit reached"),
    "Fit": lambda: ullage.fit(8_192, input_tokens=8_000, max_tokens=1_024),
    "Live": lambda: agent.Live("s", "text_delta", {"text": "wine"}),
    "Pause": ullage.Pause,
    "Policy": ullage.Policy.auto_summary,
    "Provider": lambda: ullage.Provider("qwen3-8b", URL, api_key="k", options={"top_p": 1}),
    "Rung": lambda: ullage.Rung(0.8, 0.6, ("clear",)),
    "Strategy": lambda: ullage.Strategy("mine", len),  # type: ignore[arg-type]  # any function
    "Spent": ullage.Spent,
    "SummaryRequest": lambda: ullage.SummaryRequest("s", "p", "quoted", 300, 4),
    "Thresholds": ullage.Thresholds,
    "Truncation": lambda: ullage.Truncation(("short", "at_half"), 10, 2_000, 9),
    "TurnBudget": lambda: ullage.TurnBudget(9_000, 0.5),
    "Usage": lambda: ullage.Usage(3, 1, 0, 2, 0),
    "Window": lambda: ullage.window("gpt-4o"),
    "JobOutcome": lambda: ullage.JobOutcome(state="done", session="s", text="wine"),
    "RetentionRules": lambda: ullage.RetentionRules(days=30.0),
    "TenantLimits": ullage.TenantLimits,
    "Consent": lambda: ullage.Consent(allowed=False, reason="not now"),
    "Context": lambda: ullage.Context("s", "none"),
    "agent.Grant": lambda: agent.Grant(SUBJECT, "tool"),
    "agent.Pending": lambda: agent.Pending.over(
        Call("c1", "run", "{}"), agent.Preview("command", "ls"), SUBJECT
    ),
    "agent.Preview": lambda: agent.Preview("command", "ls", "Nothing is changed."),
    "agent.Decision": lambda: agent.Decision("allow", "plan"),
    "agent.Draft": lambda: agent.Draft("user_message", {"text": "hello"}),
    "agent.ToolOutcome": lambda: agent.ToolOutcome("fine"),
    "agent.Rule": lambda: agent.Rule("*.py", "allow"),
    "agent.Sandbox": agent.Sandbox,
    "agent.Spec": lambda: agent.Spec("look", "Look.", {"type": "object"}),
    "edits.Drop": lambda: edits.Drop(3),
    "edits.Clear": lambda: edits.Clear(1, 0, -1, "gone"),
    "edits.Insert": lambda: edits.Insert(1, "user", "here"),
    "agent.Call": lambda: agent.Call("c1", "read", "{}"),
    "agent.Subagents": lambda: agent.Subagents(depth=2),
    "agent.Reply": lambda: agent.Reply("text"),
    "edits.Strip": lambda: edits.Strip(1),
    "edits.Script": lambda: compacted().outcome.script,
    "edits.Edited": lambda: compacted().outcome.edited,
    "errors.ErrorKind": lambda: ullage.ErrorKind("input", 4_096, 5_000, "likely"),
}
"""A value of each public class, made as a user makes it."""

ERRORS: Mapping[str, errors.UllageError] = {
    "ContextTooLargeError": errors.ContextTooLargeError("too large", tokens=12, bound=10),
    "ContextWindowUnknown": errors.ContextWindowUnknown("some-model", "Set it."),
    "QueueFull": errors.QueueFull("full", waiting=3, limit=3),
    "MalformedHistoryError": errors.MalformedHistoryError("bad", index=3),
    **{
        kind.__name__: kind("what happened")
        for kind in (
            *(errors.BusyWriter, errors.CompactionError, errors.ConfigurationError),
            *(errors.CorruptLog, errors.Fenced, errors.ProviderError, errors.StoreAway),
            *(errors.StoreError, errors.UllageError, errors.UnknownSession),
        )
    },
}

STAYING: Mapping[str, Callable[[], Any]] = {
    "Agent": lambda: ullage.Agent(ullage.Provider("m", URL), runtime=Runtime()),
    "Guard": guard,
    "JobQueue": lambda: ullage.JobQueue("sqlite:jobs.db"),
    "Ticket": lambda: ullage.Ticket(ullage.JobQueue("sqlite:jobs.db"), "j", "s"),
    "TurnWorker": lambda: ullage.TurnWorker("sqlite:jobs.db", STAYING["Agent"]()),
    "Runtime": Runtime,
    "Session": lambda: ullage.Session.create(ullage.open_log("memory:")),
    "Store": lambda: ullage.open_store("memory:"),
    "Summarizer": lambda: ullage.Summarizer("m", base_url=URL, runtime=Runtime()),
    "Tally": lambda: ullage.Tally(model="gpt-4o"),
    "View": lambda: guard().prepare(ASK),
    "agent.Compacting": lambda: agent.Compacting(None, "", guard().prepare(ASK)),
    "metrics.Metrics": lambda: metrics.Metrics("m"),
    "open_store": lambda: ullage.open_store("memory:"),
    "open_log": lambda: ullage.open_log("memory:"),
    "wrap": lambda: ullage.wrap(openai.OpenAI(api_key="k"), window=3_000),
}
"""What belongs to a process."""

SEARCHED = ullage.open_store("memory:")
SEARCHED.originals.keep({"u:1": "a word"})

RESULTS: Mapping[str, Callable[[], Any]] = {
    "allocate": lambda: ullage.allocate(8_000),
    "answer_recall": lambda: ullage.answer_recall({}, ullage.open_store("memory:")),
    "answer_search": lambda: ullage.answer_search({}, ullage.open_store("memory:")),
    "assess": lambda: ullage.assess(None, None),
    "classify_error": lambda: ullage.classify_error(400, "prompt is too long"),
    "classify_exception": lambda: ullage.classify_exception(ValueError("x")),
    "compact": lambda: ullage.compact(ASK, target_tokens=10_000),
    "context": lambda: ullage.context(ASK),
    "cost": lambda: ullage.cost(ullage.count(ASK), "nobody's-model"),
    "count": lambda: ullage.count(ASK),
    "count_text": lambda: ullage.count_text("text", model="llama3"),
    "detect_truncation": lambda: ullage.detect_truncation(12, ullage.count(log_of(40))),
    "developer_context": lambda: ullage.developer_context(Context("s", "/w"), "build", "ask"),
    "fit": lambda: ullage.fit(100, input_tokens=200),
    "models": lambda: ullage.models(provider="anthropic"),
    "recall_tool": lambda: ullage.recall_tool("anthropic"),
    "list_left_out": lambda: ullage.list_left_out(ASK),
    "list_old_sessions": lambda: ullage.list_old_sessions(ullage.open_log("memory:"), 1.0),
    "plan_retention": lambda: ullage.plan_retention(
        ullage.open_log("memory:"), ullage.RetentionRules(days=1.0), 0.0
    ),
    "apply_retention": lambda: ullage.apply_retention(ullage.open_log("memory:"), [], float),
    "purge_sessions": lambda: ullage.purge_sessions(ullage.open_log("memory:"), []),
    "repair": lambda: ullage.repair([*ASK, {"role": "tool", "tool_call_id": "x", "content": ""}]),
    "search": lambda: ullage.search("word", store=SEARCHED),
    "search_tool": lambda: ullage.search_tool("anthropic"),
    "system_prompt": lambda: ullage.system_prompt("build"),
    "window": lambda: ullage.window("nobody's-model"),
}
"""What public functions return."""

TWINS = {"acompact", "acount", "amodels", "awindow"}
"""They return what the functions do that they are named after."""

NOTHING = {"validate", "window_tokens", "recall", "register_store"}
"""Functions that return nothing, a number or a text."""

INSIDE = {
    "StreamProvider",  # a protocol
    "agent.Equipment", "agent.TurnOptions",  # dictionaries
    "agent.Event",  # tried apart, below
    "agent.Executor", "agent.Tool", "agent.load_skills", "metrics.ProxyMeters",  # live
    "metrics.Host", "metrics.disable", "metrics.enable",
}  # fmt: skip


def public() -> Iterator[str]:
    """Yield every public name; those of a public module by both names."""
    for name in ullage.__all__:
        value = getattr(ullage, name)
        if not isinstance(value, ModuleType):
            yield name
            continue
        shown = getattr(value, "__all__", [])
        for inner, held in vars(value).items():
            own = isinstance(held, type) and held.__module__ == value.__name__
            if not inner.startswith("_") and (own or (callable(held) and inner in shown)):
                yield f"{name}.{inner}"


def again(value: Any) -> list[Any]:
    copies = [pickle.loads(pickle.dumps(value, protocol)) for protocol in PROTOCOLS]
    return [*copies, copy.deepcopy(value)]


def test_every_public_name_is_tried() -> None:
    known = {*VALUES, *ERRORS, *STAYING, *RESULTS, *TWINS, *NOTHING, *INSIDE}
    known |= {f"events.{kind.__name__}" for kind in told()}
    known |= {f"errors.{name}" for name in ERRORS}
    tried = known | {f"{room}.{name}" for name in known for room in ("agent", "errors")}
    assert [name for name in public() if name not in tried] == []


@pytest.mark.parametrize("name", [*VALUES, *RESULTS])
def test_a_value_comes_back_equal(name: str) -> None:
    value = {**VALUES, **RESULTS}[name]()
    assert all(found == value and type(found) is type(value) for found in again(value))


@pytest.mark.parametrize("kind", list(told()), ids=lambda kind: kind.__name__)
def test_an_event_comes_back_equal(kind: type) -> None:
    event = told()[kind]
    assert all(found == event for found in again(event))


def test_what_hangs_on_a_result_comes_back_equal() -> None:
    view, made = guard().prepare(log_of(40)), compacted()
    held = [view.prepared, view.assessment, view.window, view.compaction, dict(view.kwargs)]
    held += [made.checkpoint, made.outcome, made.before, made.history, view.request]
    for value in held:
        assert value is not None
        assert all(found == value for found in again(value))


def test_a_recorded_event_of_a_session_comes_back_equal() -> None:
    session = ullage.Session.create(ullage.open_log("memory:"))
    (event,) = session.events()
    assert all(found == event for found in again(event))


def test_a_policy_that_names_tools_comes_back_equal_from_a_read_only_mapping() -> None:
    policy = ullage.Policy(results={"ask": "once"})
    assert all(found == policy for found in again(policy))


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_comes_back_with_its_words_and_its_facts(name: str) -> None:
    error = ERRORS[name]
    error.add_note("seen in the night watch")
    for found in again(error):
        assert type(found) is type(error)
        assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))


class Sunk(ullage.ContextTooLargeError):
    """An error of a user's, with a constructor of its own."""

    def __init__(self, depth: int) -> None:
        super().__init__(f"sunk at {depth}", tokens=depth, bound=1)


def test_an_error_derived_from_ours_comes_back_whatever_its_constructor_takes() -> None:
    for found in again(Sunk(40)):
        assert (type(found), str(found), found.tokens) == (Sunk, "sunk at 40", 40)


@pytest.mark.parametrize("name", STAYING)
def test_what_belongs_to_a_process_says_so_and_what_to_do_instead(name: str) -> None:
    value = STAYING[name]()
    for refuse in (*[lambda p=p: pickle.dumps(value, p) for p in PROTOCOLS],
                   lambda: copy.deepcopy(value)):  # fmt: skip
        with pytest.raises(TypeError, match=r"belongs to its process.*: \w+ .*"):
            refuse()


def test_guards_views_and_wrapped_clients_can_be_copied_in_their_process() -> None:
    held = guard()
    assert copy.copy(held).prepare(ASK).messages == ASK
    view = held.prepare(ASK)
    assert copy.copy(view).messages == view.messages
    client = ullage.wrap(openai.OpenAI(api_key="k"), window=3_000)
    assert isinstance(copy.copy(client), openai.OpenAI)


# --- other processes ------------------------------------------------------------------------------


def overflow(n: int) -> None:
    """Raise in the child what a request that cannot fit raises."""
    history = [{"role": "user", "content": "the barometer falls " * 50}] * n
    ullage.validate(history, window=100, model="gpt-4o")


def unknown(_: int) -> int:
    return ullage.window_tokens("nobody's-model")


def shrink(n: int) -> ullage.Compaction:
    return ullage.compact(log_of(n), target_tokens=900, model="gpt-4o")


SPAWN = multiprocessing.get_context("spawn")


def test_a_pool_gets_the_errors_of_its_workers() -> None:
    with SPAWN.Pool(1) as pool:
        with pytest.raises(ullage.ContextTooLargeError, match="compact before") as too_large:
            pool.apply_async(overflow, (3,)).get(timeout=60)
        with pytest.raises(ullage.ContextWindowUnknown) as not_known:
            pool.apply_async(unknown, (3,)).get(timeout=60)
    assert (too_large.value.bound, not_known.value.model) == (100, "nobody's-model")
    assert too_large.value.tokens > 100


def test_a_process_pool_gets_errors_and_results_of_its_workers() -> None:
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        with pytest.raises(ullage.ContextTooLargeError):
            pool.submit(overflow, 3).result(timeout=60)
        assert pool.submit(shrink, 40).result(timeout=60) == shrink(40)


def test_a_read_only_mapping_of_the_caller_is_the_callers_own_trouble() -> None:
    with pytest.raises(TypeError, match="mappingproxy"):
        pickle.dumps(ullage.Policy(results=MappingProxyType({"ask": "once"})))
