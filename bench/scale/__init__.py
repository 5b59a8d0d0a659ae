"""What breaks first with many sessions: measured on a real database, fitted, and simulated."""
