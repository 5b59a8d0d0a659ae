"""Everything that is known of the dialect `openai_responses`."""
