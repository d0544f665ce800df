"""Processes of a deployment: their roles, how they are started and ended, and how they find each other."""
