"""A live terminal view of every conversation of this machine, or of a proxy, like htop."""
