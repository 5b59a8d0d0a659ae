"""The guard for programs: `Guard`, its drivers, and how it sends requests and gets summaries."""
