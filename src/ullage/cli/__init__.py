"""The terminal: one file for each command. stdout is the answer, stderr the activity."""
