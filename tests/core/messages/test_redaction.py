"""Redaction: known values go in every form that they travel in, and nothing else does."""

from __future__ import annotations

import json
from base64 import b64encode
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from ullage.core.messages.redaction import REDACTED, SHORTEST, Redactor

SECRETS = st.text(st.characters(codec="utf-8"), min_size=SHORTEST, max_size=40)


@given(SECRETS, st.text(max_size=20), st.text(max_size=20))
def test_a_secret_is_in_no_text_plain_or_encoded(secret: str, before: str, after: str):
    redactor = Redactor([secret])
    for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe="")):
        assert form not in redactor.text(f"{before} {form} {after}").replace(REDACTED, "")
    packed = b64encode(secret.encode()).decode().rstrip("=")
    assert packed not in redactor.text(f"Basic {packed}")


@given(st.text(max_size=60))
def test_text_without_secrets_stays(text: str):
    assert Redactor(["\N{SNOWMAN}" * 9]).text(text) == text.replace("\N{SNOWMAN}" * 9, REDACTED)
    assert Redactor().text(text) == text


def test_data_is_redacted_in_depth_keys_too():
    redactor = Redactor(["sk-sentinel-1"])
    data = {"sk-sentinel-1": [{"a": ("x sk-sentinel-1", 3, None, True)}], "n": 1.5}
    assert redactor.data(data) == {
        REDACTED: [{"a": [f"x {REDACTED}", 3, None, True]}],
        "n": 1.5,
    }
