"""How the clients of SDKs are described: whom a call asks, and where its parts stand."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

import pytest

from ullage.core.dialects import registry
from ullage.core.dialects.client import ClientForm, GivenMessages, Recipient, find_text, find_url
from ullage.core.dialects.gemini.clients import read_contents, read_system
from ullage.core.dialects.openai_clients import find_litellm

FORMS = [(d.name, form) for d in registry.dialects() for form in d.clients()]


def locate(package: str, client: Any, **given: Any) -> Recipient:
    form = next(form for _, form in FORMS if form.package == package)
    return form.locate(client, given)


@pytest.mark.parametrize(("name", "form"), FORMS, ids=lambda value: getattr(value, "title", value))
def test_every_form_has_places_for_its_parts_and_asks_nobody_for_an_empty_client(
    name: str, form: ClientForm
) -> None:
    places = form.find_places(registry.find(name).fields)
    assert {"messages", "tools", "max_tokens"} <= places.keys()
    assert form.locate(object(), {}) == Recipient()
    assert form.is_home(form.package)
    assert form.is_home(f"{form.package}.inner")
    assert not form.is_home(f"{form.package}x")
    assert form.methods


def test_whom_a_call_asks_is_read_from_the_client() -> None:
    url = "http://127.0.0.1:9/v1"
    own = Thing(base_url=url, api_key=None, auth_token="t")
    assert locate("anthropic", own, model="m") == Recipient("m", url, "t")
    assert locate("openai", own, model="m") == Recipient("m", url, None)
    held = Thing(_http_options=Thing(base_url=url), api_key="k")
    given = {"model": "publishers/google/models/gemini-x"}
    assert locate("google.genai", Thing(_api_client=held), **given) == Recipient(
        "gemini-x", url, "k"
    )
    meta = Thing(meta=Thing(endpoint_url=url))
    assert locate("botocore", meta, modelId="m") == Recipient("m", url)
    inner = Thing(headers={"authorization": "Bearer k"}, base_url=url)
    assert locate("ollama", Thing(_client=inner), model="m") == Recipient("m", url, "k")
    details: dict[str, Any] = {"get_server_details": lambda: ("http://127.0.0.1:9", {})}
    for security in (Thing(api_key="k"), lambda: Thing(api_key="k")):
        mine = Thing(sdk_configuration=Thing(security=security, **details))
        assert locate("mistralai", mine, model="m") == Recipient("m", url, "k")
        assert locate("mistralai", mine, server_url="http://o/").base_url == "http://o/v1"


def test_a_model_of_litellm_loses_its_prefix_at_a_server_of_its_own() -> None:
    assert find_litellm(object(), {"model": "openai/gpt-4o"}) == Recipient("openai/gpt-4o")
    asked = {"model": "openai/tiny", "api_base": "http://127.0.0.1:9/v1", "api_key": "k"}
    assert find_litellm(object(), asked) == Recipient("tiny", "http://127.0.0.1:9/v1", "k")
    assert find_litellm(object(), {**asked, "model": "tiny"}).model == "tiny"

    def listed(*models: str) -> Any:
        rows = [{"litellm_params": {"model": name}} for name in models]
        return Thing(get_model_list=lambda model_name: rows)

    assert find_litellm(listed("a/b", "a/b"), {"model": "mine"}) == Recipient("a/b")
    assert find_litellm(listed("a/b", "a/c"), {"model": "mine"}) == Recipient()
    assert find_litellm(listed(), {"model": "mine"}) == Recipient()


def test_contents_are_read_in_every_form_that_googles_client_takes() -> None:
    content = {"role": "user", "parts": [{"text": "a"}]}
    assert read_contents([content]).messages == [content]
    assert read_contents("hi").messages == [{"role": "user", "parts": [{"text": "hi"}]}]
    assert read_contents(content).messages == [content]
    assert read_contents(("a", "b")).messages[0]["parts"] == [{"text": "a"}, {"text": "b"}]
    assert read_contents({"file_uri": "gs://a"}).messages[0]["parts"] == [
        {"file_data": {"file_uri": "gs://a", "mime_type": "application/octet-stream"}}
    ]
    assert read_contents([{"role": "user"}]).messages == [{"role": "user"}]
    assert read_contents([[]]).messages == []


def test_a_system_text_is_read_in_every_form() -> None:
    assert read_system(None) is None
    assert read_system("a") == "a"
    assert read_system(["a", {"text": "b"}]) == ["a", {"text": "b"}]
    assert read_system({"parts": [{"text": "a"}]}) == [{"text": "a"}]
    assert read_system(Thing(text=None)) == [{"text": ""}]


def test_texts_and_urls_at_the_end_of_a_path() -> None:
    assert find_text({"a": {"b": "c"}}, "a", "b") == "c"
    assert find_text({"a": ""}, "a") is None
    assert find_url(Thing(a=Thing(b=None)), "a", "b") is None
    assert find_url({"a": "u"}, "a") == "u"
    assert GivenMessages([1]).write([1, 2]) == [1, 2]
