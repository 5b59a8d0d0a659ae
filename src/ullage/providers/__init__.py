"""Calls of one model, streamed: whom to ask, the request, the retries, the answer.

A `Provider` is called over HTTP; a `StreamProvider` is an object of the caller's that answers.

It knows no guard, no log and no conversation; what the pieces of an answer add up to is decided in
`core.dialects`, what an error means in `core.dialects.overflow`.
"""

from ullage.providers.client import Client
from ullage.providers.failure import CallFailed
from ullage.providers.provider import Limits, Provider
from ullage.providers.streams import StreamProvider, read_provider

__all__ = ["CallFailed", "Client", "Limits", "Provider", "StreamProvider", "read_provider"]
