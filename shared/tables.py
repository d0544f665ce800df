"""From TOML tables to frozen dataclasses: unknown keys refused, types checked, errors that name field and value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

ConfigT = TypeVar("ConfigT")


def from_table(kind: type[ConfigT], table: Mapping[str, Any], name: str) -> ConfigT:
    """Build the dataclass `kind` from a table called `name`; fields that are missing keep their default.

    Raises:
        ValueError: an unknown key, a value of the wrong type, or one that the dataclass itself refuses.
    """
    _refuse_unknown(kind, table, name)
    try:
        return msgspec.convert(dict(table), kind, strict=True)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from None


def _refuse_unknown(kind: Any, table: Mapping[str, Any], name: str) -> None:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key, value in table.items():
        if key not in fields:
            raise ValueError(f"{name}.{key} is not a setting; there are: {', '.join(sorted(fields))}")
        factory = fields[key].default_factory
        if isinstance(value, Mapping) and dataclasses.is_dataclass(factory):
            _refuse_unknown(factory, value, f"{name}.{key}")
