"""Assertions on conversations for test suites, and recorded conversations to test.

They raise AssertionError and know no test runner; the plugin for pytest is `ullage_pytest`.
"""

from ullage.testing.assertions import assert_fits, assert_lawful
from ullage.testing.transcripts import find_transcripts, read_transcript

__all__ = ["assert_fits", "assert_lawful", "find_transcripts", "read_transcript"]
