"""From TOML tables to frozen dataclasses: unknown keys refused, types checked, errors name their field."""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

ConfigT = TypeVar("ConfigT")


def from_table(kind: type[ConfigT], table: Mapping[str, Any], name: str) -> ConfigT:
    """Build the dataclass `kind` from a table called `name`; fields that are missing keep their default.

    Raises:
        ValueError: an unknown or a missing key, a value of the wrong type, or one that the dataclass refuses;
            one line that names the field with its path.
    """
    assert dataclasses.is_dataclass(kind)
    hints = typing.get_type_hints(kind)
    for key in table:
        if key not in hints:
            raise ValueError(f"{name}.{key} is not a setting; there are: {', '.join(sorted(hints))}")
    for field in dataclasses.fields(kind):
        if field.name not in table and _has_no_default(field):
            raise ValueError(f"{name}.{field.name} is missing")
    values = {key: _value(hints[key], value, f"{name}.{key}") for key, value in table.items()}
    try:
        return typing.cast("ConfigT", kind(**values))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def require_positive(config: Any, name: str) -> None:
    """Check that every whole number in a dataclass is at least 1, also inside tuples (never empty).

    Raises:
        ValueError: names the first field that is not so, and its value.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        numbers = value if isinstance(value, tuple) else (value,)
        if not numbers or any(isinstance(number, int) and number < 1 for number in numbers):
            raise ValueError(f"{name}: {field.name}={value} must be at least 1")


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _value(hint: Any, value: Any, name: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return from_table(typing.cast("type[Any]", hint), value, name)
    try:
        return msgspec.convert(value, hint, strict=True)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}={value!r}: {error}") from None
