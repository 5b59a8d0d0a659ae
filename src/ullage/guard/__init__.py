"""The guard for programs: `Guard`, its drivers, how requests are sent, how summaries are asked for."""
