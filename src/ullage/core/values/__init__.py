"""How values of ours show themselves, report progress and refuse to be pickled."""
