"""The rules of conversation: when the agent answers or falls silent, and what it says."""
