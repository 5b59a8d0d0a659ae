"""Clients that send to the Responses API: OpenAI's, LiteLLM's (openai 3.54, litellm 1.110)."""

from __future__ import annotations

from typing import Final

from ullage.core.dialects.client import ClientForm, ClientMethod
from ullage.core.dialects.openai_clients import find_litellm, make_openai

CLIENTS: Final = (
    make_openai(("responses",)),
    ClientForm(
        title="the module litellm and its Router",
        package="litellm",
        classes={},
        modules=frozenset({"litellm"}),
        paths=((),),
        methods={
            "responses": ClientMethod(awaits=False),
            "aresponses": ClientMethod(awaits=True),
        },
        locate=find_litellm,
        headers="extra_headers",
    ),
)
