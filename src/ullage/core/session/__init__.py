"""A session: its log, its turns, the tools that run in it, and the permissions."""
