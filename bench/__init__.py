"""Measures ullage beside its peers: `make bench`, or `python -m bench --help`.

Every peer runs in a virtual environment and processes of its own; an independent judge counts and
checks what comes out. Nothing in `src` or `tests` knows of this package.
"""
