"""Everything that is known of the dialect `anthropic`."""
