"""The executor: what is offered, what is said of a call, and that no call raises."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.executor.calls import call, dry, fields, ran
from ullage.core.errors import ConfigurationError, StoreError
from ullage.core.messages.transcript import Call
from ullage.core.search.ranking import Hit
from ullage.core.session.permissions import Access, Posture, Rule
from ullage.core.session.tools import Intent, Spec, ToolOutcome
from ullage.tools import Executor, Fault, Sandbox, ToolLimits

READERS = ["read", "list", "search", "plan"]


class Echo:
    """A tool of a caller's own: says what it was called with, or fails as it is told."""

    spec = Spec("echo", "says it", fields({"fail": {"type": "string"}}))

    def access(self, arguments) -> Access:
        return Access(changes=True, writes=("echo.txt",))

    async def run(self, arguments, *, key, dry_run) -> ToolOutcome:
        match arguments.get("fail"):
            case "fault":
                raise Fault("as told")
            case "system":
                raise OSError(28, "No space left on device")
            case "store":
                raise StoreError("the store is gone")
            case _:
                return ToolOutcome(f"{key} {dry_run}" + "x" * 2_000, marks={"seen": 1})


class Left:
    """What was left out: one text."""

    def __init__(self, text: str = "ab" * 1_000) -> None:
        self.text = text

    def read(self, reference: str) -> str:
        if reference not in {"u:0123456789abcdef", "x"}:
            raise StoreError(f"no text for {reference!r}")
        return self.text

    def search(self, query: str, hits: int) -> list[Hit]:
        if query == "!":
            raise StoreError("the store is gone")
        return [Hit("u:0123456789abcdef", 4, f"{query} {hits}", 1.0)] * (query == "ab")


@pytest.fixture
def executor(tmp_path: Path) -> Executor:
    return Executor(tmp_path, past=Left(), limits=ToolLimits(characters=1_000))


def offered(executor: Executor, *posture: str) -> list[str]:
    return [spec.name for spec in executor.specs(Posture(*posture))]  # type: ignore[arg-type]


def test_where_nothing_may_change_only_tools_that_read_are_offered(executor, tmp_path) -> None:
    past = ["ullage_recall", "ullage_search"]
    assert offered(executor) == ["read", "list", "search", "write", "edit", "plan", *past]
    assert offered(executor, "plan", "auto") == [*READERS, *past]
    assert offered(executor, "build", "read_only") == [*READERS, *past]
    assert offered(executor, "build", "ask") == offered(executor)
    assert not set(past) & set(offered(Executor(tmp_path)))


def test_a_shell_is_offered_where_it_is_on(tmp_path) -> None:
    sandbox = Sandbox()
    executor = Executor(tmp_path, shell=sandbox)
    assert ("shell" in offered(executor)) == (not sandbox.lacking(executor.workspace))
    assert "shell" not in offered(executor, "plan")


def test_what_is_recorded_of_a_call_before_it_runs(executor) -> None:
    for name in (*READERS, "ullage_recall"):
        assert executor.intent(call(name)) == Intent(reads_only=True, idempotent=True)
    for name in ("write", "edit", "shell", "unknown"):
        assert executor.intent(call(name)) == Intent(reads_only=False, idempotent=False)


def test_what_cannot_be_read_may_run_and_comes_to_an_error(executor) -> None:
    wrong = (
        Call("1", "nothing", "{}"),
        Call("1", "write", '{"path": 1}'),
        Call("1", "write", "no JSON"),
        Call("1", "write", '{"path": "../x", "content": ""}'),
        Call("1", "write", '{"path": "", "content": ""}'),
    )
    for each in wrong:
        assert executor.decide(each, Posture("plan")).verdict == "allow"
        outcome = asyncio.run(executor.run(each, key="k"))
        assert outcome.is_error
        assert outcome.text.startswith("error: ")
    assert "there is no tool 'nothing'; there are read, list" in ran(executor, "nothing").text
    assert list(executor.workspace.root.iterdir()) == []


def test_policies_hold_for_a_path_however_it_is_written(executor) -> None:
    (executor.workspace.root / "src").mkdir()
    (executor.workspace.root / "src/main.py").write_text("x")
    posture = Posture(writes=(Rule("src/main.py", "deny"),))
    for path in (
        "src/main.py",
        "./src//main.py",
        "a/../src/main.py",
        "SRC/Main.py",
        str(executor.workspace.root / "src/main.py"),
    ):
        assert executor.decide(call("write", path=path, content=""), posture).by == "policy"
        asked = call("edit", path=path, old="x", new="y")
        assert executor.decide(asked, posture).by == "policy"
    (executor.workspace.root / "door").symlink_to("src")
    (executor.workspace.root / "alias").symlink_to("src/main.py")
    for path in ("door/main.py", "alias"):
        assert ran(executor, "write", path=path, content="").is_error
    assert (executor.workspace.root / "src/main.py").read_text() == "x"
    assert executor.decide(call("read", path="src/main.py"), posture).verdict == "allow"


@given(
    st.sampled_from([*READERS, "write", "edit", "shell", "ullage_recall", "x"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["path", "content", "old", "new", "steps", "command", "pattern"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=6,
    ),
)
def test_nothing_that_a_model_may_write_raises(tmp_path_factory, name, given) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "beside").mkdir()
    (folder / "work").mkdir()
    executor = Executor(folder / "work", past=Left())
    for text in (json.dumps(given), str(given)):
        asked = Call("1", name, text)
        executor.decide(asked, Posture())
        outcome = asyncio.run(executor.run(asked, key="k"))
        json.dumps([outcome.text, dict(outcome.marks)]).encode()
        outcome.text.encode()
    assert list((folder / "beside").iterdir()) == []


def test_a_plan_is_shown_and_changes_nothing(executor) -> None:
    steps = [{"text": "read"}, {"text": "write", "status": "doing"}]
    outcome = ran(executor, "plan", steps=steps)
    assert outcome.plan == ({"status": "to do", "text": "read"}, steps[1])
    assert not outcome.is_error


def test_what_was_left_out_is_read_back_in_pages(executor) -> None:
    first = ran(executor, "ullage_recall", reference="[u:0123456789abcdef]").text
    assert first.endswith("[characters 0 to 900 of 2000; go on with offset=900]")
    last = ran(executor, "ullage_recall", reference="u:0123456789abcdef", offset=1_800).text
    assert last == "ab" * 100 + "\n[characters 1800 to 2000 of 2000; the end]"
    beyond = ran(executor, "ullage_recall", reference="u:0123456789abcdef", offset=2_001)
    assert "offset 2,001 is past the end: the text has 2,000 characters" in beyond.text
    assert "no text for 'u:0'" in ran(executor, "ullage_recall", reference="u:0").text
    short = Executor(executor.workspace.root, past=Left("all"))
    assert ran(short, "ullage_recall", reference="x").text == "all"


def test_what_was_left_out_is_found_by_words(executor) -> None:
    found = ran(executor, "ullage_search", query="ab").text
    assert found == "Left out of this conversation:\n\n[u:0123456789abcdef offset=4]\nab 6"
    assert ran(executor, "ullage_search", query="c").text.startswith("Nothing that was left out")
    assert ran(executor, "ullage_search", query=" ").text.startswith("error: query is missing")
    assert ran(executor, "ullage_search", query="!").text == "error: the store is gone"


def test_a_callers_own_tools_take_the_place_of_the_others(tmp_path) -> None:
    executor = Executor(tmp_path, tools=[Echo()], limits=ToolLimits(characters=1_000))
    assert offered(executor) == ["echo"]
    assert executor.decide(call("echo"), Posture("build", "ask")).verdict == "ask"
    outcome = ran(executor, "echo")
    assert outcome.text.startswith("k1 False")
    assert outcome.marks == {"seen": 1, "truncated": 1_008}
    assert dry(executor, "echo").marks["dry_run"] is True
    assert ran(executor, "echo", fail="fault") == ToolOutcome("error: as told", is_error=True)
    assert ran(executor, "echo", fail="system").text == "error: No space left on device"
    assert ran(executor, "echo", fail="store").text == "error: the store is gone"


def test_more_tools_can_be_had_and_the_executor_stays_as_it_is(tmp_path) -> None:
    bare = Executor(tmp_path, tools=[])
    assert offered(bare.extend(Echo())) == ["echo"]
    assert offered(bare) == []
    with pytest.raises(ConfigurationError, match="same name: echo is there already"):
        bare.extend(Echo()).extend(Echo())


def test_what_cannot_be_an_executor_is_refused(tmp_path) -> None:
    with pytest.raises(ConfigurationError, match="same name"):
        Executor(tmp_path, tools=[Echo(), Echo()])
    with pytest.raises(ConfigurationError, match="cannot be used"):
        Executor(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="characters of the tools is 10"):
        ToolLimits(characters=10)
    with pytest.raises(ConfigurationError, match="search_s of the tools is 0"):
        ToolLimits(search_s=0)


def test_where_files_are_not_opened_relative_to_folders_there_are_no_tools(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("os.supports_dir_fd", set())
    with pytest.raises(ConfigurationError, match="opens files relative to folders"):
        Executor(tmp_path)


def test_plans_and_recalls_touch_nothing(executor) -> None:
    for asked in (call("plan", steps=[]), call("ullage_recall", reference="x")):
        assert executor.decide(asked, Posture("plan")).verdict == "allow"
