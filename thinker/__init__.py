"""The process that listens, keeps the model state, decodes and serves clients."""
