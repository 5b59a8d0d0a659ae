"""What is worth keeping of a conversation, found by rule, and its written form."""
