"""The Thinker's half of films: requests, decoding, video encoding."""
