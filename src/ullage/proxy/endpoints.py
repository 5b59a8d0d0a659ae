"""The endpoints of `/ullage/v1`: their paths, requests and answers.

The module answers no request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ullage.proxy import forms

ROOT: Final = "/ullage/v1/"
DOCUMENT: Final = "/ullage/v1/openapi.json"


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """One endpoint: the types of its request and answer, and its purpose.

    `by_query` says that GET works too, with the fields in the query.
    """

    name: str
    takes: type[Any]
    answers: type[Any]
    about: str
    by_query: bool = False

    @property
    def path(self) -> str:
        """Its path."""
        return f"{ROOT}{self.name}"

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that it accepts."""
        return ("GET", "POST") if self.by_query else ("POST",)


ENDPOINTS: Final = (
    ApiEndpoint("fit", forms.FitRequest, forms.FitAnswer, "Make a conversation fit its window."),
    ApiEndpoint(
        "observe",
        forms.ObserveRequest,
        forms.ObserveAnswer,
        "Learn from a response or an error; after an overflow, a smaller request to send.",
    ),
    ApiEndpoint(
        "count", forms.CountRequest, forms.CountAnswer, "Count messages, or a text, in tokens."
    ),
    ApiEndpoint(
        "window",
        forms.WindowRequest,
        forms.WindowAnswer,
        "Say how much one request to a model may hold, and who says so.",
        by_query=True,
    ),
    ApiEndpoint(
        "recall",
        forms.RecallRequest,
        forms.RecallAnswer,
        "Read a text that was left out of a conversation.",
    ),
    ApiEndpoint(
        "search",
        forms.SearchRequest,
        forms.SearchAnswer,
        "Find words in what was left out of a conversation.",
    ),
)

BY_PATH: Final[Mapping[str, ApiEndpoint]] = {endpoint.path: endpoint for endpoint in ENDPOINTS}


def is_api(path: str) -> bool:
    """Tell whether a path lies below `/ullage/v1/`."""
    return path.startswith(ROOT)
