"""The guard for programs: `Guard`, its drivers, how requests are sent and summaries asked for."""
