from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.tables import from_table, require_positive


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    spokes: int = 32
    width: float = 1.5
    sizes: tuple[int, ...] = (1, 2)

    def __post_init__(self) -> None:
        require_positive(self, "wheel")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cart:
    name: str
    wheel: Wheel = field(default_factory=Wheel)
    extra: dict[str, Any] = field(default_factory=dict)
    note: str | None = None

    def __post_init__(self) -> None:
        if self.name == "truck":
            raise ValueError(f"name={self.name} is too heavy")


def test_what_is_not_said_keeps_its_default() -> None:
    assert from_table(Cart, {"name": "a"}, "cart") == Cart(name="a")
    made = from_table(Cart, {"name": "a", "wheel": {"spokes": 8}, "note": "old"}, "cart")
    assert made == Cart(name="a", wheel=Wheel(spokes=8), note="old")


def test_values_get_the_fields_own_types() -> None:
    made = from_table(Wheel, {"width": 2, "sizes": [3, 4, 5]}, "wheel")
    assert isinstance(made.width, float)
    assert made.sizes == (3, 4, 5)


def test_a_free_table_is_taken_as_it_is_and_copied() -> None:
    extra = {"anything": {"goes": 1}}
    made = from_table(Cart, {"name": "a", "extra": extra}, "cart")
    assert made.extra == extra
    assert made.extra is not extra


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        ({"name": "a", "wheels": 4}, ("cart.wheels is not a setting", "extra, name, note, wheel")),
        ({"name": "a", "wheel": {"spoke": 4}}, ("cart.wheel.spoke is not a setting", "sizes, spokes, width")),
        ({}, ("cart.name is missing",)),
        ({"name": 3}, ("cart.name=3", "Expected `str`")),
        ({"name": "a", "wheel": {"spokes": "many"}}, ("cart.wheel.spokes='many'", "Expected `int`")),
        ({"name": "a", "wheel": {"spokes": 1.5}}, ("cart.wheel.spokes=1.5", "Expected `int`")),
        ({"name": "a", "wheel": {"spokes": True}}, ("cart.wheel.spokes=True", "Expected `int`")),
        ({"name": "a", "wheel": {"sizes": [1, "b"]}}, ("cart.wheel.sizes=[1, 'b']", "Expected `int`", "[1]")),
        ({"name": "a", "wheel": 4}, ("cart.wheel=4", "Expected `object`")),
        ({"name": "truck"}, ("cart: name=truck is too heavy",)),
        ({"name": "a", "wheel": {"spokes": 0}}, ("cart.wheel: wheel: spokes=0 must be at least 1",)),
    ],
)
def test_what_is_wrong_is_named_with_its_path_and_value(
    table: dict[str, Any], parts: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match="cart") as caught:
        from_table(Cart, table, "cart")
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("field_name", "value"), [("spokes", 0), ("spokes", -1), ("sizes", ()), ("sizes", (1, 0))]
)
def test_whole_numbers_must_be_positive(field_name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"wheel: {field_name}="):
        Wheel(**{field_name: value})


def test_other_kinds_of_fields_are_left_alone() -> None:
    require_positive(Wheel(width=-1.0), "wheel")
