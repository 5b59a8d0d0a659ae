"""One request on its way: what is due before the send, after a refusal and after a response."""
