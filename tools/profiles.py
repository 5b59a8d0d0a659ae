"""How hard Hypothesis tries: `short` for `make test`, `long` for `make test-long`.

A pytest plugin (`-p tools.profiles`). A test that sets `max_examples` itself is out of its reach,
so tests of laws leave that alone.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "short",
    max_examples=50,
    deadline=None,
    derandomize="CI" in os.environ,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("short"), max_examples=10_000)
