"""One folder a dialect, and the tables that read providers' errors. Dialects do not know each other."""
