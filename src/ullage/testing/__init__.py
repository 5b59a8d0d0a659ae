"""Fakes and fixtures for tests of ullage and of programs that use it.

The room of the `testing` extra: shipped and public, and imported by nothing else in the package.
The modules are imported one by one, because each needs other parts of the extra.
"""
