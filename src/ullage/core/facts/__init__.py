"""Find by rule the facts of a conversation that are worth keeping, and write them down."""
