"""One folder per dialect, and the tables for providers' errors. No dialect knows another."""
