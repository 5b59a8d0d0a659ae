"""Streamed calls of one model: the target, the request, the retries, the answer.

A `Provider` is called over HTTP; a `StreamProvider` is an object of the caller that answers itself.

This package knows no guard, no log and no conversation. `core.dialects` assembles the pieces of an
answer, and `core.dialects.overflow` interprets errors.
"""

from ullage.providers.client import Client
from ullage.providers.failure import CallFailed
from ullage.providers.provider import Limits, Provider
from ullage.providers.streams import StreamProvider, read_provider

__all__ = ["CallFailed", "Client", "Limits", "Provider", "StreamProvider", "read_provider"]
