import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.planner.profile import Profile, StageCost, interpolate, read_profile
from shared.errors import ConfigError

MakeProfile = Callable[..., Profile]


def test_costs_between_and_beyond_the_measured_batches_lie_on_lines() -> None:
    stage = StageCost(ms=((1, 10.0), (2, 14.0), (4, 20.0)))
    assert [stage.at(n) for n in (1, 2, 3, 4)] == [10, 14, 17, 20]


def test_beyond_the_measured_batches_no_gain_is_hoped_for() -> None:
    flattening, steepening = ((1, 10.0), (2, 40.0), (4, 40.0)), ((1, 10.0), (2, 10.0), (4, 40.0))
    assert StageCost(ms=flattening).at(7) == 10 + 6 * 10  # as on average
    assert StageCost(ms=steepening).at(7) == 40 + 3 * 15  # as between the last two


def test_a_stage_measured_at_one_size_gains_nothing_from_batching() -> None:
    assert StageCost(ms=((1, 3.0),)).at(5) == 15


def test_durations_spread_as_they_were_measured() -> None:
    factors = StageCost(ms=((1, 10.0),), spread=((10, 0.9), (50, 1.0), (90, 1.1), (99, 2.0))).factors()
    assert [factors[percent] for percent in (0, 10, 30, 50, 90, 99)] == pytest.approx(
        [0.9, 0.9, 0.95, 1, 1.1, 2]
    )
    assert StageCost(ms=((1, 10.0),)).factors() == [1.0] * 100


def test_a_factor_known_for_one_alone_stays() -> None:
    assert interpolate(((1, 1.0),), 7) == 1


def test_slow_down_goes_on_as_it_began(make_profile: MakeProfile) -> None:
    profile = make_profile(slow_down=((1, 1.0), (2, 1.1)))
    assert [profile.slowed(n) for n in (0, 1, 2, 4)] == pytest.approx([1, 1, 1.1, 1.3])


@pytest.mark.parametrize("envelope", [False, True])
def test_a_profile_survives_its_file(make_profile: MakeProfile, tmp_path: Path, envelope: bool) -> None:
    profile = make_profile(gain=0.7, spread=1.2, rank_speed_up=((1, 1.0), (2, 1.8)))
    table = dataclasses.asdict(profile)
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"name": "profile", "profile": table} if envelope else table))
    assert read_profile(path) == profile


def change(table: dict[str, Any], path: str, value: object) -> None:
    *folders, last = path.split(".")
    for folder in folders:
        table = table[folder]
    table[last] = value


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        ("modle", "x", ("profile.modle is not a setting",)),
        ("stages.solve.msec", 3, ("profile.stages.solve.msec is not a setting",)),
        ("unit_ms", 0, ("unit_ms=0", "above 0")),
        ("unit_ms", "fast", ("profile.unit_ms='fast'",)),
        ("stages.solve.ms", [], ("profile.stages.solve: ms=()", "begin at 1")),
        ("stages.solve.ms", [[2, 3.0]], ("begin at 1 and rise",)),
        ("stages.solve.ms", [[1, 3.0], [1, 4.0]], ("begin at 1 and rise",)),
        ("stages.solve.ms", [[1, 3.0], [2, 2.0]], ("must not fall",)),
        ("stages.solve.ms", [[1, -3.0]], ("numbers from 0 on",)),
        ("stages.solve.spread", [[50, 0.9]], ("spread=((50, 0.9),)", "1 at 50")),
        ("stages.solve.spread", [[99, 1.0]], ("50 among them",)),
        ("stages.solve.spread", [[50, 1.0], [100, 2.0]], ("from 0 to 99",)),
        ("stages.solve.spread", [[50, 1.0], [99, 0.9]], ("must not fall",)),
        ("rank_speed_up", [[1, 2.0]], ("rank_speed_up", "1 for one")),
        ("decode_speed_up", [[1, 1.0], [2, 0.0]], ("decode_speed_up", "above 0")),
        ("exchange.fixed_us", -1, ("fixed_us=-1", "at least 0")),
        ("sizes.latents", -1, ("latents=-1", "at least 0")),
    ],
)
def test_what_is_wrong_in_a_file_is_named(
    make_profile: MakeProfile, tmp_path: Path, path: str, value: object, parts: tuple[str, ...]
) -> None:
    table = json.loads(json.dumps(dataclasses.asdict(make_profile())))
    change(table, path, value)
    file = tmp_path / "p.json"
    file.write_text(json.dumps(table))
    with pytest.raises(ConfigError) as caught:
        read_profile(file)
    message = str(caught.value)
    assert "\n" not in message
    for part in (str(file), *parts):
        assert part in message


@pytest.mark.parametrize("content", ["", "[1]", '{"profile": 3}', "{"])
def test_what_is_no_profile_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "p.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=r"p\.json"):
        read_profile(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        read_profile(tmp_path / "nowhere.json")
