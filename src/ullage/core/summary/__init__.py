"""Asks for a summary, reads it and checks it. It calls no model: it yields requests."""
