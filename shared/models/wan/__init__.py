"""Streaming text-to-video: Causal Forcing on Wan 2.1, its decoders, a small model of the same structure."""
