"""How well the pocket model does what its card claims, measured on what no training saw."""
