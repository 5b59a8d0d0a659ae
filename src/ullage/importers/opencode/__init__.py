"""Sessions of opencode: their places and their contents.

Sources: sessions recorded with opencode 1.1.65 (files), 1.2.4 and 1.18.33 (SQLite), each with the
requests that it sent (tests/recordings/opencode); anomalyco/opencode
(packages/opencode/src/session/message-v2.ts, session.sql.ts, revert.ts, compaction.ts).
"""
