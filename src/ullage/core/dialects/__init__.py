"""One folder a dialect, and the tables that read providers' errors. No dialect knows another."""
