"""Data, recipes and evaluation of `wan-pocket`, the small text-to-video model; no part of the runtime."""
