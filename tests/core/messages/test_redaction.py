"""Redaction: known values go in every form that they travel in, and nothing else does."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.messages.redaction import KEYS, REDACTED, SHORTEST, Redactor, find_keys

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


A, N = "a1B2c3D4", "0123456789"
PEM = "-----{} RSA PRIVATE KEY-----"
MADE = {
    "private key": f"{PEM.format('BEGIN')}\n{A * 9}\n{PEM.format('END')}",
    "AWS access key": "AK" + "IA" + "ABCDEFGH" * 2,
    "GitHub token": "github" + "_pat_" + A * 9,
    "GitLab token": "gl" + "pat-" + A * 3,
    "Anthropic key": "sk-" + "ant-api03-" + A * 9,
    "OpenAI key": "sk-" + "proj-" + A * 9,
    "OpenRouter key": "sk-" + "or-v1-" + "0a1b" * 16,
    "Google key": "AI" + "za" + (A * 5)[:35],
    "Slack token": "xo" + f"xb-{N}-{N}-{A}",
    "Stripe key": "sk" + "_live_" + A * 3,
    "npm token": "np" + "m_" + (A * 5)[:36],
    "PyPI token": "py" + "pi-AgE" + A * 9,
    "Hugging Face token": "hf" + "_" + "aBcDe" * 7,
    "JSON web token": "ey" + f"J{A * 2}.ey" + f"J{A * 4}.{A * 4}",
}
MADE["Hugging Face token"] = MADE["Hugging Face token"][:37]


def test_there_is_a_case_for_each_kind() -> None:
    assert MADE.keys() == KEYS.keys()


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("around", ["{}", "token={};", '{{"key": "{}"}}', "Bearer {}\n", "({})"])
def test_a_well_known_key_is_taken_out(kind: str, around: str) -> None:
    text = around.format(MADE[kind])
    assert list(find_keys(text)) == [kind]
    assert Redactor(keys=True).text(text) == around.format(REDACTED)
    assert Redactor(keys=True).data({"a": [text]}) == {"a": [around.format(REDACTED)]}
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "the class sk-loading-indicator-with-a-very-long-name-indeed",
        "https://example.com/a1b2/AKIDABCDEFGHIJKLMNOP",
        "sha256:" + "0a1b2c3d" * 8,
        "commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
        "npm_config_registry_of_the_workspace_with_a_long_name",
        "hf_transformers_and_other_words_in_snake_case",
        "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----",
        "u:0123456789abcdef and eyJ alone",
    ],
)
def test_what_only_looks_alike_stays(text: str) -> None:
    assert list(find_keys(text)) == []
    assert Redactor(keys=True).text(text) == text


PIECES = ("sk-", PEM.format("BEGIN") + "a", "eyJ", "eyJaaaaaaaaaa.", "a/", "xoxb-1", "-")


@pytest.mark.parametrize("piece", PIECES)
def test_the_time_grows_with_the_text_alone(piece: str) -> None:
    def spent(size: int) -> float:
        text, best = piece * (size // len(piece)), float("inf")
        for _ in range(3):
            begun = time.process_time()
            list(find_keys(text))
            best = min(best, time.process_time() - begun)
        return best

    assert spent(400_000) < 8 * max(spent(100_000), 0.002)
