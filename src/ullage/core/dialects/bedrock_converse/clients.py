"""AWS's own clients: boto3's `bedrock-runtime`, and aiobotocore's (botocore 1.44).

Their classes are made at run time from the service's model, and have the name of the service.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ullage.core.dialects.client import ClientForm, ClientMethod, Path, Recipient, find_text

PLACES: Final[Mapping[str, tuple[Path, ...]]] = {"tools": (("toolConfig", "tools"),)}

METHODS: Final[Mapping[str, ClientMethod]] = {
    "converse": ClientMethod("whole"),
    "converse_stream": ClientMethod("stream", holds="stream"),
}


def _find_server(client: Any, given: Mapping[str, Any]) -> Recipient:
    """Return the target of a call; requests are signed, so there is no key."""
    return Recipient(find_text(given, "modelId"), find_text(client, "meta", "endpoint_url"))


CLIENTS: Final = (
    ClientForm(
        title='boto3.client("bedrock-runtime")',
        package="botocore",
        classes={"BedrockRuntime": False},
        paths=((),),
        methods=METHODS,
        locate=_find_server,
        places=PLACES,
    ),
    ClientForm(
        title="aiobotocore's bedrock-runtime",
        package="aiobotocore",
        classes={"BedrockRuntime": True},
        paths=((),),
        methods=METHODS,
        locate=_find_server,
        places=PLACES,
    ),
)
