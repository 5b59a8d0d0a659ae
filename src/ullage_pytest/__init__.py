"""The plugin of ullage for pytest: assertions on conversations, and recorded ones as fixtures.

Every run of pytest in an environment with ullage loads it, so it loads nothing of ullage until a
test needs it: the work is done in `ullage.testing`. It is outside the package, so that coverage of
the package can begin after the plugins are loaded. It has no assertion to be rewritten:
PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ullage.importers import ImportedSession

MARKER = "ullage_transcripts"
ARGUMENT = "transcript"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(*patterns, source=None): run the test once for each recorded conversation that "
        f"the patterns name, as its argument `{ARGUMENT}`",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a marked test for each recorded conversation."""
    marks = list(metafunc.definition.iter_markers(MARKER))
    if not marks:
        return
    if ARGUMENT not in metafunc.fixturenames:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid} is marked {MARKER} and has no argument {ARGUMENT}"
        )
    from ullage.core.errors import ConfigurationError
    from ullage.testing import find_transcripts

    root, here = metafunc.config.rootpath, metafunc.definition.path.parent
    cases: dict[str, tuple[Path, Any]] = {}
    try:
        for mark in marks:
            for pattern in mark.args:
                for path in find_transcripts(pattern, (root, here)):
                    name = str(path.relative_to(root) if path.is_relative_to(root) else path)
                    cases[name] = (path, mark.kwargs.get("source"))
    except ConfigurationError as error:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: {error}") from error
    metafunc.parametrize(ARGUMENT, cases.values(), ids=list(cases), indirect=True)


@pytest.fixture
def transcript(request: pytest.FixtureRequest) -> ImportedSession:
    """Return a recorded conversation that the marker `ullage_transcripts` names."""
    given = getattr(request, "param", None)
    if given is None:
        raise pytest.UsageError(
            f"{request.node.nodeid} takes {ARGUMENT} and is not marked {MARKER}: mark it with the "
            "patterns of the files, or take the fixture ullage_transcript"
        )
    from ullage.testing import read_transcript

    path, source = given
    return read_transcript(path, source=source)


@pytest.fixture
def ullage_transcript(request: pytest.FixtureRequest) -> Callable[..., ImportedSession]:
    """Return a reader of recorded conversations, by a path from the root or the test's folder."""
    from ullage.testing import read_transcript

    def read(path: str | Path, *, source: str | None = None) -> ImportedSession:
        places = [folder / path for folder in (request.config.rootpath, request.path.parent)]
        found = next((place for place in places if place.exists()), places[0])
        return read_transcript(found, source=source)

    return read


@pytest.fixture
def assert_fits() -> Callable[..., None]:
    """Return `ullage.testing.assert_fits`."""
    from ullage.testing import assert_fits

    return assert_fits


@pytest.fixture
def assert_lawful() -> Callable[..., None]:
    """Return `ullage.testing.assert_lawful`."""
    from ullage.testing import assert_lawful

    return assert_lawful
