import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.planner.layouts import ONE_PROCESS, PAIR
from benchmarks.planner.plan import LATE_SHARE, Plan, largest_load, plan, predict
from benchmarks.planner.profile import Profile, Sizes
from benchmarks.planner.simulate import simulate
from benchmarks.planner.workload import STAGES, Workload

MakeProfile = Callable[..., Profile]
UNITS = 40
costs = st.fixed_dictionaries({name: st.floats(1.0, 60.0) for name in STAGES})


def test_a_pair_is_best_for_one_session_and_replicas_for_many(make_profile: MakeProfile) -> None:
    """The pocket model on two cores: nothing is gained from batching."""
    found = plan(make_profile(), 2, UNITS)
    assert found.highest_rate.name == "pair"
    assert found.most_sessions is not None
    assert found.most_sessions.name == "2 x one process"
    assert found.most_sessions.sessions == 6
    assert found.lowest_latency is not None
    assert found.lowest_latency.cell == ONE_PROCESS  # the same path without an exchange


def test_ranks_win_where_the_solve_is_long(make_profile: MakeProfile) -> None:
    speed_up = ((1, 1.0), (2, 1.8), (4, 3.0))
    found = plan(make_profile({"solve": 90.0}, gain=0.3, rank_speed_up=speed_up), 5, UNITS)
    assert found.lowest_latency is not None
    assert str(found.lowest_latency.cell) == "T+P(4)"
    assert found.highest_rate.cell.ranks == 4


def test_a_decoder_wins_where_decoding_is_long(make_profile: MakeProfile) -> None:
    found = plan(make_profile({"decode": 70.0, "solve": 60.0}), 3, UNITS)
    assert str(found.highest_rate.cell) == "T+P+D"
    assert found.highest_rate.bound_alone.startswith(("loop", "decoder"))


def test_what_is_too_slow_for_real_time_still_has_a_best_rate(make_profile: MakeProfile) -> None:
    found = plan(make_profile({"solve": 300.0}), 2, UNITS)
    assert (found.lowest_latency, found.most_sessions) == (None, None)
    assert found.highest_rate.name == "pair"
    assert {each.sessions for each in found.predictions} == {0}
    assert {each.bound for each in found.predictions} == {"one session is too much"}


def test_one_session_more_than_the_most_is_too_much(make_profile: MakeProfile) -> None:
    profile = make_profile(gain=0.6)
    load, outcome = largest_load(profile, PAIR, Workload(units=UNITS))
    assert outcome is not None
    assert outcome.late < LATE_SHARE
    more = [Workload(sessions=load.sessions + 1, phases=p, units=UNITS) for p in (1, 2, 3, 4)]
    assert all(simulate(profile, PAIR, each).late >= LATE_SHARE for each in more)


def test_memory_limits_sessions(make_profile: MakeProfile) -> None:
    sizes = Sizes(
        thinker_weights=40, performer_weights=10, shared_weights=20, session_cache=10, state_slice=1,
        remember_slice=1, latents=1, device_bytes=85,
    )  # fmt: skip
    profile = make_profile(sizes=sizes)
    assert predict(profile, ONE_PROCESS, 1, UNITS).sessions == 1
    pair = predict(profile, PAIR, 1, UNITS)
    assert pair.sessions == 2
    assert pair.bound == "memory 94%"


def test_fewer_copies_where_more_would_only_be_in_each_others_way(make_profile: MakeProfile) -> None:
    profile = make_profile(slow_down=((1, 1.0), (2, 1.0), (3, 40.0)))
    assert predict(profile, ONE_PROCESS, 3, UNITS).copies == 2


def best(found: Plan) -> tuple[float, float, float]:
    """Higher is better."""
    return (
        -found.highest_rate.alone_flat.interval_ms,
        -found.lowest_latency.alone.latency_p50_ms if found.lowest_latency else -1e9,
        found.most_sessions.sessions if found.most_sessions else 0,
    )


@settings(deadline=None, max_examples=5)
@given(ms=costs, gain=st.floats(0.2, 1.0))
def test_more_devices_never_make_the_best_worse(
    make_profile: MakeProfile, ms: dict[str, float], gain: float
) -> None:
    profile = make_profile(ms, gain=gain, rank_speed_up=((1, 1.0), (2, 1.7)))
    plans = [best(plan(profile, devices, 20)) for devices in (1, 2, 3)]
    for fewer, more in itertools.pairwise(plans):
        assert all(b >= a for a, b in zip(fewer, more, strict=True))


def test_the_same_profile_gives_the_same_plan(make_profile: MakeProfile) -> None:
    profile = make_profile(spread=1.4)
    assert plan(profile, 3, UNITS) == plan(profile, 3, UNITS)


@pytest.mark.parametrize("devices", [1, 2, 5])
def test_no_layout_needs_more_devices_than_there_are(make_profile: MakeProfile, devices: int) -> None:
    assert all(each.devices <= devices for each in plan(make_profile(), devices, UNITS).predictions)
