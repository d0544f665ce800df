"""The face of the agent: drawn, moved by phones, and measured in pictures."""
