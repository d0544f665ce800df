"""The family `pocket`: a small agent that listens, speaks and shows a face."""
