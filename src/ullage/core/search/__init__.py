"""Search in texts that were left out: terms, passages, and how well a passage fits."""
