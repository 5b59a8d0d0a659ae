"""One request: the steps before the send, after a refusal and after a response."""
