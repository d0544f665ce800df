"""The commands: each parses its arguments, builds a config and calls the packages. Thin on purpose."""
