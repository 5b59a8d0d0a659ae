"""The OpenAPI document of `/ullage/v1`, written from the types that parse its requests.

The module knows the endpoints, and answers none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, Final

import msgspec

from ullage.core.dialects import registry
from ullage.proxy import forms
from ullage.proxy.endpoints import DOCUMENT, ENDPOINTS, ApiEndpoint

SPEC: Final = "3.1.0"
SCHEMAS: Final = "#/components/schemas/{name}"

REFUSALS: Final = (
    ("400", "the body is no JSON, is nested too deeply, or holds an invalid number"),
    ("401", "a token is missing: send it as x-ullage-token or as bearer token"),
    ("403", "the host or the origin is not served"),
    ("404", "no upstream serves the model, or there is no such session or text"),
    ("405", "the method is not allowed here: see Allow"),
    ("413", "the body, its values or its messages are over the limit"),
    ("415", "the body is compressed, or of another type than application/json"),
    ("422", "a field is missing, unknown or wrong, or the messages cannot be read"),
    ("429", "over a bound of this client or of the proxy: come again after Retry-After"),
    ("500", "the guard failed: send the request as it is, and see the log of the proxy"),
    ("503", "it took too long, or the proxy or its store is busy or ends"),
)

ONE_OF: Final = (
    ("CountRequest", ("messages", "text")),
    ("ObserveRequest", ("report", "error")),
)
"""Requests that have exactly one of these fields, which types cannot express."""


@cache
def make_document() -> dict[str, Any]:
    """Return the document. It is shared, so callers must not change it."""
    types = [e.takes for e in ENDPOINTS] + [e.answers for e in ENDPOINTS] + [forms.ErrorAnswer]
    _, schemas = msgspec.json.schema_components(types, ref_template=SCHEMAS)
    known = [{"enum": [dialect.name for dialect in registry.dialects()]}, {"type": "null"}]
    for schema in schemas.values():
        if "dialect" in schema["properties"] and "default" in schema["properties"]["dialect"]:
            schema["properties"]["dialect"] |= {"anyOf": known}
    for name, fields in ONE_OF:
        schemas[name]["oneOf"] = [{"required": [field]} for field in fields]
    return {
        "openapi": SPEC,
        "info": {
            "title": "ullage",
            "version": version("ullage"),
            "description": "Keeps conversations with language models inside their window. "
            "Messages are those of a dialect, and have no schema here.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"token": []}, {"bearer": []}],
        "paths": {
            **{endpoint.path: _write_path(endpoint) for endpoint in ENDPOINTS},
            DOCUMENT: {"get": _write_document()},
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "x-ullage-token"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


@cache
def encode_document() -> bytes:
    """Return the document as JSON."""
    return msgspec.json.encode(make_document())


def _write_path(endpoint: ApiEndpoint) -> dict[str, Any]:
    body = {"required": True, "content": _write_content(endpoint.takes)}
    asked = {**_write_operation(endpoint, endpoint.name), "requestBody": body}
    if endpoint.takes is not forms.WindowRequest and endpoint.takes is not forms.CountRequest:
        asked["parameters"] = [SESSION]
    if not endpoint.by_query:
        return {"post": asked}
    read = _write_operation(endpoint, f"{endpoint.name}ByQuery")
    schema = msgspec.json.schema(endpoint.takes)["$defs"][endpoint.takes.__name__]
    parameters = [
        {"name": name, "in": "query", "required": name in schema["required"], "schema": found}
        for name, found in schema["properties"].items()
    ]
    return {"get": {**read, "parameters": parameters}, "post": asked}


SESSION: Final[Mapping[str, Any]] = {
    "name": "x-ullage-session",
    "in": "header",
    "required": False,
    "description": "the session, where the body does not name it",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": forms.LONGEST_SESSION,
        "pattern": forms.SESSION_PATTERN,
    },
}


def _write_operation(endpoint: ApiEndpoint, name: str) -> dict[str, Any]:
    answered = {"description": "the answer", "content": _write_content(endpoint.answers)}
    return {
        "operationId": name,
        "summary": endpoint.about,
        "responses": {"200": answered, **_write_refusals()},
    }


def _write_document() -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}}}
    answered = {"description": "this document", "content": content}
    refusals = _write_refusals()
    told = {code: refusals[code] for code in ("400", "403", "405", "415", "429", "500", "503")}
    return {
        "operationId": "document",
        "summary": "Return this document; no token is needed.",
        "security": [{}],
        "responses": {"200": answered, **told},
    }


def _write_refusals() -> dict[str, Any]:
    content = _write_content(forms.ErrorAnswer)
    return {code: {"description": why, "content": content} for code, why in REFUSALS}


def _write_content(made: type[Any]) -> dict[str, Any]:
    reference = {"$ref": SCHEMAS.format(name=made.__name__)}
    return {"application/json": {"schema": reference}}
