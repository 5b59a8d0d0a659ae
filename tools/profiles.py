"""Hypothesis profiles: for `make test` (short), `make coverage` (few), `make nightly` (drawn).

`make test` draws the same examples on every run, so it draws fewer than the profiles that look for
new ones: `drawn`, and `long` of `make test-long`. `tests/conftest.py` loads `short`. A test that
sets `max_examples` itself is not affected, so tests of laws do not set it. The Makefile sets the
seed (`SEED`).
"""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, settings

SHORT: Final = "short"

settings.register_profile(
    SHORT,
    max_examples=30,
    deadline=None,
    derandomize=False,  # Hypothesis sets it under CI, and then ignores the seed
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("few", settings.get_profile(SHORT), max_examples=10)
settings.register_profile("drawn", settings.get_profile(SHORT), max_examples=50)
settings.register_profile("long", settings.get_profile(SHORT), max_examples=10_000)
