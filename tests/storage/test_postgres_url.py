"""A URL as it may be shown: whatever stands in it, no password."""

from __future__ import annotations

import pytest

from ullage.storage.postgres_url import hide_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql://me@host:5432/db", "postgresql://me@host:5432/db"),
        ("postgresql://me:geheim@host/db", "postgresql://me@host/db"),
        ("postgresql://me:ge@heim@host/db", "postgresql://me@host/db"),
        ("postgresql://me:ge/heim?@host/db", "postgresql://me@host/db"),
        ("postgresql://:geheim@host", "postgresql://@host"),
        ("postgresql://me:geheim", "postgresql://me"),
        ("postgresql://me:geheim/db", "postgresql://me/db"),
        ("postgresql://[::1]:5432,b:1/db", "postgresql://[::1]:5432,b:1/db"),
        ("postgresql:///db?host=%2Frun&password=geheim", "postgresql:///db?host=%2Frun"),
        ("postgresql:///db?Password=geheim", "postgresql:///db"),
        ("postgresql:///db?sslpassword=geheim&sslmode=require", "postgresql:///db?sslmode=require"),
        ("postgresql:///db?password=ge@heim", "postgresql://heim"),
        ("mysql://me:geheim@host", "mysql://me@host"),
        ("sqlite:folder/a@b.db", "sqlite:folder/a@b.db"),
        ("", ""),
    ],
)
def test_what_is_shown_opens_it_for_whoever_knows_the_password(url: str, shown: str):
    assert hide_password(url) == shown
