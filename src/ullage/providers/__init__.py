"""Calls of one model over HTTP, streamed: whom to ask, the request, the retries, the answer.

It knows no guard, no log and no conversation; what the pieces of an answer add up to is decided in
`core.dialects`, what an error means in `core.dialects.overflow`.
"""

from ullage.providers.client import Client
from ullage.providers.failure import CallFailed
from ullage.providers.provider import Limits, Provider

__all__ = ["CallFailed", "Client", "Limits", "Provider"]
