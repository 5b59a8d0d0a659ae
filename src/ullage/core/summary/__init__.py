"""Ask for a summary, read it and check it. This room calls no model: it yields requests."""
