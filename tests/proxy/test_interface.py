"""The proxy's own endpoints as their clients meet them: what they answer, refuse and keep apart."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.proxy.serving import CHAT, OVERFLOWS, WHOLE, Proxy, asked, proxied
from tests.support.faults import FaultServer, of_json
from ullage.config.serving import ModelRule, Upstream
from ullage.core.errors import StoreError
from ullage.proxy.endpoints import ENDPOINTS
from ullage.proxy.openapi import make_document
from ullage.storage.memory import MemoryStore

ROOT: Final = "/ullage/v1/"
RULES: Final = (ModelRule(window=4_096, recall_tools=True),)
TOKENS: Final = {name: name[0] * 24 for name in ("ann", "bob")}


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    with FaultServer({CHAT: of_json(WHOLE["openai_chat"])}) as started:
        yield started


@pytest.fixture(scope="module")
def proxy(server: FaultServer) -> Iterator[Proxy]:
    with proxied(server.root_url, rules=RULES) as started:
        yield started


@pytest.fixture(scope="module")
def shared(server: FaultServer) -> Iterator[Proxy]:
    upstreams = (Upstream("main", server.root_url, api_key="sk-operator"),)
    with proxied(server.root_url, rules=RULES, upstreams=upstreams, tokens=TOKENS) as started:
        yield started


def post(proxy: Proxy, name: str, body: Any, **headers: Any) -> Any:
    """Return an answer that keeps to the document: its status among those that are named."""
    answer = proxy.post(ROOT + name, body, **headers)
    told = make_document()["paths"][ROOT + name]["post"]["responses"]
    assert str(answer.status_code) in told, answer.text
    made = told[str(answer.status_code)]["content"]["application/json"]["schema"]
    check_schema(answer.json(), made)
    return answer


def check_schema(value: Any, schema: Any) -> None:
    whole = {**schema, "components": make_document()["components"]}
    jsonschema.Draft202012Validator(whole).validate(value)


def read_files(count: int, *, words: int = 900) -> list[dict[str, Any]]:
    """Return a conversation in which so many files were read, each of a text of its own."""
    made: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Read all files."},
    ]
    for n in range(count):
        call = {"name": "read", "arguments": json.dumps({"n": n})}
        asks = [{"id": f"c{n}", "type": "function", "function": call}]
        made.append({"role": "assistant", "content": None, "tool_calls": asks})
        text = f"file {n}: " + f"cask-{n} is dry. " * (words // 4)
        made.append({"role": "tool", "tool_call_id": f"c{n}", "content": text})
    return made


def apply_edits(history: list[Any], edits: list[Any]) -> list[Any]:
    return [history[one["keep"]] if "keep" in one else one["new"] for one in edits]


@pytest.mark.parametrize("count", [1, 6])
def test_the_edit_script_makes_the_fitted_messages_of_the_clients_own(
    proxy: Proxy, count: int
) -> None:
    history = read_files(count)
    told = post(proxy, "fit", {"model": "m", "messages": history}).json()
    assert apply_edits(history, told["edits"]) == told["messages"]
    assert told["changed"] is (count > 1)
    assert told["fits"]
    covered = [place for one in told["edits"] for place in list_places(one)]
    assert sorted(covered) == list(range(len(history))), "each message is accounted for once"


def test_what_is_gone_behind_a_message_that_stays_is_among_what_the_summary_stands_for(
    proxy: Proxy,
) -> None:
    history = read_files(6, words=200)
    history += [{"role": "assistant", "content": "Read."}, {"role": "user", "content": "And now?"}]
    body = {"model": "m", "messages": history, "pins": [1, 5, 6], "target": 400}
    told = post(proxy, "fit", {**body, "session": "islands"}).json()
    assert apply_edits(history, told["edits"]) == told["messages"]
    covered = [place for one in told["edits"] for place in list_places(one)]
    assert sorted(covered) == list(range(len(history)))


def list_places(step: Any) -> list[int]:
    return step.get("for") or [step.get("keep", step.get("edit"))]


def test_a_rule_that_observes_lowers_no_limit(server: FaultServer) -> None:
    rules = (ModelRule(window=4_096, observe=True),)
    body = {"model": "m", "messages": read_files(6), "max_tokens": 9_000}
    with proxied(server.root_url, rules=rules) as fresh:
        told = post(fresh, "fit", body).json()
    assert (told["changed"], told["fits"], told["max_tokens"]) == (False, False, 9_000)


@pytest.mark.parametrize(
    "raw", [b'{"model": "m\\ud800", "messages": []}', b'\xef\xbb\xbf{"model": "m", "messages": []}']
)
def test_no_messages_are_no_missing_field_whichever_parser_took_the_body(
    proxy: Proxy, raw: bytes
) -> None:
    told = post(proxy, "fit", raw)
    assert (told.status_code, told.json()["messages"]) == (200, [])


def test_a_history_that_was_fitted_to_a_window_of_its_own_is_read_back_by_it(proxy: Proxy) -> None:
    body = {"model": "m", "messages": read_files(3, words=400), "window": 1_500}
    (first, *_) = post(proxy, "fit", body).json()["compaction"]["references"]
    assert post(proxy, "recall", {**body, "reference": first}).status_code == 200


def test_what_fits_comes_back_byte_for_byte_and_is_told_as_unchanged(proxy: Proxy) -> None:
    said = b'{"role": "user",  "content": "gr\\u00fcn", "own": [1.0, 1e2]}'
    raw = b'{"model": "m", "messages": [' + said + b"]}"
    answer = post(proxy, "fit", raw)
    assert said in answer.content
    assert answer.json()["edits"] == [{"keep": 0}]
    assert answer.json()["changed"] is False


def test_the_request_after_a_fit_goes_on_from_its_compaction(proxy: Proxy) -> None:
    history = read_files(6)
    first = post(proxy, "fit", {"model": "m", "messages": history, "session": "on"}).json()
    longer = [*history, {"role": "assistant", "content": "All six."}]
    longer.append({"role": "user", "content": "And now?"})
    again = post(proxy, "fit", {"model": "m", "messages": longer, "session": "on"}).json()
    assert first["compaction"]["new"]
    assert again["compaction"]["new"] is False
    assert again["messages"][:-2] == first["messages"]


def test_a_session_reads_and_searches_what_was_left_out_of_it(proxy: Proxy) -> None:
    history = read_files(6)
    post(proxy, "fit", {"model": "m", "messages": history, "session": "back"})
    query = {"model": "m", "session": "back", "query": "cask-2"}
    (hit,) = post(proxy, "search", {**query, "hits": 1}).json()["hits"]
    asked_for = {"model": "m", "session": "back", "reference": hit["reference"], "limit": 100}
    page = post(proxy, "recall", asked_for).json()
    assert page["after"] == 100
    assert page["total"] > 1_000
    by_history = {"model": "m", "messages": history, "query": "cask-2", "hits": 1}
    same = post(proxy, "search", by_history, x_ullage_session="back").json()
    assert same["hits"] == [hit]


@pytest.mark.parametrize("name", ["recall", "search"])
def test_another_session_and_another_client_find_nothing_of_it(shared: Proxy, name: str) -> None:
    body = {"model": "m", "messages": read_files(6), "session": "mine"}
    ann, bob = ({"x_ullage_token": TOKENS[who]} for who in ("ann", "bob"))
    (first, *_) = post(shared, "fit", body, **ann).json()["compaction"]["references"]
    what = {"reference": first} if name == "recall" else {"query": "cask-2"}
    query = {"model": "m", "session": "mine", **what}
    assert post(shared, name, query, **ann).status_code == 200
    assert post(shared, name, query, **bob).json()["error"]["code"] == "no_such_session"
    other = {**query, "session": "other"}
    assert post(shared, name, other, **ann).json()["error"]["code"] == "no_such_session"
    forged = [{"role": "user", "content": f"recall {first}"}]
    mine = post(shared, name, {"model": "m", "messages": forged, **what}, **bob)
    assert mine.status_code == 404 if name == "recall" else mine.json() == {"hits": []}


def test_a_stranger_gets_the_document_and_nothing_else(shared: Proxy) -> None:
    assert post(shared, "fit", {"model": "m", "messages": []}).status_code == 401
    told = shared.client.get(f"{shared.url}{ROOT}openapi.json")
    assert told.status_code == 200
    assert told.json() == make_document()


def test_an_overflow_teaches_the_limit_and_returns_a_smaller_request(server: FaultServer) -> None:
    body = {"model": "m", "messages": read_files(6)}
    with proxied(server.root_url, rules=()) as fresh:
        first = post(fresh, "fit", body).json()
        assert first["fits"] is None
        assert not first["changed"]
        failure = {"status": 400, "body": OVERFLOWS["openai_chat"]}
        told = post(fresh, "observe", {**body, "error": failure}).json()
        assert told["kind"] == "input"
        assert told["retry"]["sizes"]["high"] < 4_096
        assert told["window"]["input_tokens"] == 4_096
        again = post(fresh, "fit", body).json()
        assert again["messages"] == told["retry"]["messages"]


def test_a_report_corrects_the_next_count_whichever_way_it_is_told(server: FaultServer) -> None:
    history = read_files(1)
    report = {"usage": {"prompt_tokens": 1_600, "completion_tokens": 9, "total_tokens": 1_609}}
    for extra in ("observe", "reported"):
        with proxied(server.root_url, rules=RULES) as fresh:
            body: dict[str, Any] = {"model": "m", "messages": history}
            if extra == "observe":
                told = post(fresh, "observe", {**body, "report": report}).json()
                assert told["gauge"]["used"] == 1_600
            else:
                body["reported"] = {"messages": len(history), "report": report}
            body["messages"] = [*history, {"role": "assistant", "content": "One."}]
            sizes = post(fresh, "fit", body).json()["sizes"]
            assert sizes["basis"] == "calibrated"
            assert 1_600 < sizes["after"] < 1_620


def test_a_large_body_is_answered_by_a_worker_with_the_same_answer(proxy: Proxy) -> None:
    history = read_files(6)
    history[1]["content"] = "word " * 60_000
    body = {"model": "m", "messages": history, "session": "large", "window": 64_000}
    assert len(json.dumps(body)) > 262_144
    told = post(proxy, "fit", body).json()
    assert proxy.app.workers is not None
    assert proxy.app.workers.pids
    assert apply_edits(history, told["edits"]) == told["messages"]
    assert told["compaction"]["new"]
    query = {"model": "m", "session": "large", "query": "cask-3", "hits": 1}
    assert post(proxy, "search", query).json()["hits"]
    counted = post(proxy, "count", {"model": "m", "messages": history}).json()
    assert counted["tokens"] == told["sizes"]["before"]


def test_a_session_is_known_to_a_request_that_is_large_enough_for_a_worker(proxy: Proxy) -> None:
    body = {"model": "m", "session": "tooled"}
    told = post(proxy, "fit", {**body, "messages": read_files(6)}).json()
    tools = [{"type": "function", "function": {"name": "x", "description": "y" * 270_000}}]
    asked_for = {**body, "reference": told["compaction"]["references"][0], "tools": tools}
    assert post(proxy, "recall", asked_for).status_code == 200
    gone = post(proxy, "recall", {**asked_for, "session": "nobody"})
    assert gone.json()["error"]["code"] == "no_such_session"


def test_a_fitted_conversation_is_on_the_pages_and_no_upstream_was_asked(
    server: FaultServer, proxy: Proxy
) -> None:
    post(proxy, "fit", {"model": "m", "messages": read_files(6), "session": "shown"})
    listed = proxy.client.get(f"{proxy.url}/ullage/sessions").json()["sessions"]
    (entry,) = [one for one in listed if one["id"] == "shown"]
    assert entry["compactions"] == 1
    assert asked(server) == []


def test_pins_stay_and_a_target_is_met(proxy: Proxy) -> None:
    history = read_files(6, words=200)
    body = {"model": "m", "messages": history, "pins": [3], "target": 700, "session": "pinned"}
    told = post(proxy, "fit", body).json()
    assert {"keep": 3} in told["edits"]
    assert told["compaction"]["new"]
    assert told["sizes"]["after"] < told["sizes"]["before"]


def test_output_that_is_asked_for_in_any_case_stays_free(proxy: Proxy) -> None:
    asked = {"model": "m", "window": 8_000, "messages": read_files(6, words=200)}
    plain = post(proxy, "fit", asked).json()
    room = 8_000 - plain["sizes"]["high"]
    sent = {**asked, "reserve": room + 900}
    assert not post(proxy, "fit", sent).json()["changed"]  # nobody knows that the server insists
    size = plain["sizes"]["after"]
    said = f"{size} + {room + 900} > {size + room + 800}"
    text = f"input length and `max_tokens` exceed context limit: {said}, decrease input length"
    told = post(proxy, "observe", {**sent, "error": {"status": 400, "body": text}}).json()
    assert told["retry"]["changed"]
    kept = post(proxy, "fit", sent).json()
    assert not plain["changed"]
    assert kept["sizes"]["high"] + room + 900 <= 8_000
    assert kept["max_tokens"] is None


def test_the_window_is_told_by_post_and_by_query(proxy: Proxy) -> None:
    told = post(proxy, "window", {"model": "m"}).json()
    assert (told["input_tokens"], told["source"]) == (4_096, "override")
    asked_for = proxy.client.get(f"{proxy.url}{ROOT}window", params={"model": "m"})
    assert asked_for.json() == told


@pytest.mark.parametrize(
    ("name", "body", "status", "code"),
    [
        ("fit", b"{", 400, "not_json"),
        ("fit", {"model": "m"}, 422, "invalid_request"),
        ("fit", {"model": "m", "messages": [], "unknown": 1}, 422, "invalid_request"),
        ("fit", {"model": "m", "messages": [{}]}, 422, "malformed_history"),
        ("fit", {"model": "m", "messages": [], "pins": [3]}, 422, "configuration"),
        ("fit", {"model": "m", "messages": [], "dialect": "x"}, 422, "configuration"),
        (
            "fit",
            {"model": "m", "messages": [], "reported": {"messages": 1, "report": {}}},
            422,
            "configuration",
        ),
        (
            "fit",
            b'{"model": "m", "messages": ' + b"[" * 70 + b"]" * 70 + b"}",
            400,
            "nested_too_deep",
        ),
        ("count", {"model": "m"}, 422, "configuration"),
        ("observe", {"model": "m", "messages": []}, 422, "configuration"),
        ("recall", {"model": "m", "reference": "u:0123456789abcdef"}, 422, "configuration"),
        ("search", {"model": "m", "query": ""}, 422, "invalid_request"),
    ],
)
def test_a_request_that_cannot_be_is_refused_in_one_shape(
    proxy: Proxy, name: str, body: Any, status: int, code: str
) -> None:
    answer = post(proxy, name, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text


def test_a_count_is_that_of_the_fit_and_a_window_may_be_told(proxy: Proxy) -> None:
    history = read_files(6, words=5_000)  # beyond what is read in the event loop itself
    counted = post(proxy, "count", {"model": "m", "messages": history}).json()
    told = post(proxy, "fit", {"model": "m", "messages": history, "window": 200_000}).json()
    assert counted["tokens"] == told["sizes"]["after"]
    assert told["gauge"]["window"] == 200_000
    assert told["changed"] is False


class Unread:
    """Originals that cannot be read, and those of a store that has no search."""

    def keep(self, items: Any) -> None:
        del items

    def read(self, name: str) -> str | None:
        raise StoreError(f"{name} is out of reach")


def test_a_store_that_fails_is_told_as_503_and_one_without_search_as_422(
    server: FaultServer,
) -> None:
    store = MemoryStore()
    store.originals = Unread()  # type: ignore[assignment]  # a store that somebody brings
    with proxied(server.root_url, rules=RULES, store=store) as fresh:
        body = {"model": "m", "messages": read_files(6)}
        (first, *_) = post(fresh, "fit", body).json()["compaction"]["references"]
        failed = post(fresh, "recall", {**body, "reference": first})
        assert (failed.status_code, failed.json()["error"]["code"]) == (503, "store_failed")
        said = [{"role": "user", "content": "hi"}]
        bare = post(fresh, "search", {"model": "m", "messages": said, "query": "x"})
        assert (bare.status_code, bare.json()["error"]["code"]) == (422, "configuration")


def test_system_text_beside_messages_is_for_dialects_that_have_it(proxy: Proxy) -> None:
    said = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    body = {"model": "m", "messages": said, "system": "Be brief. " * 50}
    assert post(proxy, "fit", {**body, "dialect": "openai_chat"}).status_code == 422
    told = post(proxy, "fit", {**body, "dialect": "anthropic", "max_tokens": 9_000}).json()
    assert told["sizes"]["outside"] > 100
    assert told["max_tokens"] < 9_000


def test_methods_paths_types_and_sessions_are_checked(proxy: Proxy) -> None:
    get = proxy.client.get(f"{proxy.url}{ROOT}fit")
    assert (get.status_code, get.headers["allow"]) == (405, "POST")
    gone = proxy.post(f"{ROOT}nothing", {})
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "no_such_endpoint")
    typed = proxy.client.post(f"{proxy.url}{ROOT}fit", content="x", headers={"content-type": "a/b"})
    assert (typed.status_code, typed.json()["error"]["code"]) == (415, "type_refused")
    twice = proxy.client.get(f"{proxy.url}{ROOT}window?model=a&model=b")
    assert twice.status_code == 422
    body = {"model": "m", "messages": [], "session": "a"}
    assert post(proxy, "fit", body, x_ullage_session="b").status_code == 422
    assert post(proxy, "fit", {**body, "model": "x" * 2_000}).status_code == 422
    accented = {"model": "m", "messages": []}
    assert (
        post(proxy, "fit", accented, x_ullage_session="a\u00e9".encode("latin-1")).status_code
        == 422
    )


TEXT = st.text(max_size=12)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**12) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": TEXT})


def list_fields(takes: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Draw a body by the fields of a request: right ones, wrong ones, and some too many."""
    known = dict.fromkeys(takes.__struct_fields__, VALUE)
    right = {"model": st.just("m"), "messages": st.lists(MESSAGE, max_size=4)}
    some = {**known, **{name: right[name] | VALUE for name in right if name in known}}
    return st.fixed_dictionaries({}, optional={**some, "else": VALUE})


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_is_sent_the_answer_keeps_to_the_document(
    proxy: Proxy, endpoint: Any, data: st.DataObject
) -> None:
    body = data.draw(list_fields(endpoint.takes))
    answer = post(proxy, endpoint.name, body)
    assert answer.status_code < 500
    reference = make_document()["components"]["schemas"][endpoint.takes.__name__]
    if answer.status_code == 200:
        check_schema(body, reference)


def test_the_document_is_one_that_openapi_3_1_takes(proxy: Proxy) -> None:
    made = proxy.client.get(f"{proxy.url}{ROOT}openapi.json").json()
    for schema in made["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert set(made["paths"]) == {one.path for one in ENDPOINTS} | {f"{ROOT}openapi.json"}
    names = [o["operationId"] for path in made["paths"].values() for o in path.values()]
    assert len(names) == len(set(names))


REPOSITORY: Final = Path(__file__).parents[2]
PAGE: Final = REPOSITORY / "docs" / "http-api.md"


def test_the_page_says_what_the_endpoints_answer(server: FaultServer) -> None:
    text = PAGE.read_text("utf-8")
    found = re.findall(r"^```json\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    fit, answer, failure, count, recall = map(json.loads, found)
    with proxied(server.root_url, rules=RULES) as fresh:
        assert post(fresh, "fit", fit).json() == answer
        told = post(fresh, "observe", failure).json()
        assert told["kind"] == "input"
        assert json.dumps(post(fresh, "count", count).json()) in text
        assert post(fresh, "recall", recall).json()["error"]["code"] == "no_such_text"
    for endpoint in ENDPOINTS:
        assert endpoint.path in text


def test_the_page_of_plugins_names_the_versions_that_are_locked() -> None:
    text = (REPOSITORY / "docs" / "javascript.md").read_text("utf-8")
    folder = REPOSITORY / "integrations" / "js"
    locked = json.loads((folder / "package.json").read_text("utf-8"))["dependencies"]
    for name in ("ai", "@earendil-works/pi-coding-agent", "opencode-linux-x64"):
        assert locked[name] in text
    for plugin in ("ai-sdk.mjs", "pi.ts", "opencode.ts"):
        assert plugin in text
        assert 15 <= len((folder / plugin).read_text("utf-8").splitlines()) <= 40
