"""How hard Hypothesis tries: in `make test` (short), `make coverage` (few), `make nightly` (drawn).

`make test` draws the same examples on every run, so it draws fewer of them than what looks for new
ones: `drawn`, and `long` of `make test-long`. `tests/conftest.py` loads `short`. A test that sets
`max_examples` itself is out of its reach, so tests of laws leave that alone. The seed is not set
here: the Makefile says it (`SEED`).
"""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, settings

SHORT: Final = "short"

settings.register_profile(
    SHORT,
    max_examples=30,
    deadline=None,
    derandomize=False,  # Hypothesis would set it where CI is set, and ignore the seed
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("few", settings.get_profile(SHORT), max_examples=10)
settings.register_profile("drawn", settings.get_profile(SHORT), max_examples=50)
settings.register_profile("long", settings.get_profile(SHORT), max_examples=10_000)
