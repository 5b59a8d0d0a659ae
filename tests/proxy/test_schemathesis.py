"""The endpoints against their own document, by schemathesis: a real proxy, thousands of requests.

`make schema` installs it in a folder of its own and runs this. A find is a failure.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.proxy.serving import CHAT, WHOLE, asked, proxied
from tests.support.faults import FaultServer, of_json
from ullage.config.serving import ModelRule, Upstream
from ullage.proxy.endpoints import DOCUMENT

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

INSTALLED: Final = Path(
    os.environ.get("ULLAGE_SCHEMATHESIS", Path(__file__).parents[2] / ".venv-schema/bin")
)
SECONDS: Final = 120
LEAST: Final = 500
"""Requests below which a run says nothing."""

SETTINGS: Final = """
[checks.positive_data_acceptance]
# what a message may hold is its dialect's to say; which fields go together, the sentence of a 422
expected-statuses = ["2xx", "401", "403", "404", "422"]
"""

needs = pytest.mark.skipif(not INSTALLED.is_dir(), reason="`make schema` installs it")


@needs
@pytest.mark.parametrize("token", [None, "t" * 24])
def test_schemathesis_finds_nothing_in_thousands_of_requests(
    tmp_path: Path, token: str | None
) -> None:
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    more: dict[str, Any] = {"tokens": {"ann": token}} if token else {}
    rules = (ModelRule(window=4_096, recall_tools=True),)
    with FaultServer({CHAT: of_json(WHOLE["openai_chat"])}) as server:
        upstreams = (Upstream("main", server.root_url, api_key="sk-operator"),)
        with proxied(server.root_url, rules=rules, upstreams=upstreams, **more) as proxy:
            command = [str(INSTALLED / "schemathesis"), "run", f"{proxy.url}{DOCUMENT}"]
            command += ["--checks", "all", "--seed", "1", "--max-examples", "200", "--no-color"]
            command += ["--max-time", str(SECONDS)]
            if token:
                command += ["--header", f"x-ullage-token:{token}"]
            done = subprocess.run(
                command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False
            )
            assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
            found = re.search(r"([\d,]+) generated", done.stdout)
            assert found is not None
            assert int(found[1].replace(",", "")) >= LEAST
            assert asked(server) == [], "nothing of it reached the upstream"
            assert proxy.client.get(f"{proxy.url}/healthz").status_code == 200
