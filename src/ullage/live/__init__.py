"""What conversations do, while they do it: one stream of values for all who look."""
