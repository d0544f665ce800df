"""Noise, music, rooms and microphones, synthesised."""
