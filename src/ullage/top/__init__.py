"""The htop of context: every conversation of this machine, or of a proxy, live in a terminal."""
