"""Compares ullage with its peers: `make bench`, or `python -m bench --help`.

Every peer runs in its own virtual environment and processes. An independent judge counts and checks
the results. Nothing in `src` or `tests` uses this package.
"""
