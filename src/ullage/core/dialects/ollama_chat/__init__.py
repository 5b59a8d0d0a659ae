"""Everything that is known of the dialect `ollama_chat`."""
