"""The live state of conversations: one stream of values for all viewers."""
