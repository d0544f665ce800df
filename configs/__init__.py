"""The configs that ship with the package; `shared.config.load_config` reads them by name."""
