"""The terminal: one file a command. stdout is the answer, stderr the activity."""
