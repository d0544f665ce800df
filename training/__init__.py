"""Data and training of the pocket model; no part of the runtime."""
