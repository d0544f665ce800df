"""The simulation against closed forms, and against what a pair on two cores was measured to do."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.planner.layouts import ONE_PROCESS, PAIR, Cell
from benchmarks.planner.profile import ExchangeCost, Profile
from benchmarks.planner.simulate import simulate
from benchmarks.planner.workload import STAGES, Workload, shares

MakeProfile = Callable[..., Profile]
UNPACED = Workload(unpaced=True, jitter=False)
ON_CLOCK = Workload(jitter=False)
WAY_MS = 0.13
costs = st.fixed_dictionaries({name: st.floats(0.1, 30.0) for name in STAGES})


def test_one_process_takes_the_sum(make_profile: MakeProfile) -> None:
    flat = simulate(make_profile(), ONE_PROCESS, UNPACED)
    assert flat.interval_ms == pytest.approx(3.5 + 7.2 + 15.5 + 13.8 + 4.3)
    assert flat.busy == {"process": pytest.approx(1.0)}
    assert simulate(make_profile(), ONE_PROCESS, ON_CLOCK).latency_p50_ms == pytest.approx(40.0)


def test_a_pair_takes_what_its_busier_half_takes(make_profile: MakeProfile) -> None:
    thinker = {"decode": 40.0}
    busy = 3.5 + 7.2 + 40.0 + 4.3 + 2 * 0.05
    flat = simulate(make_profile(thinker), PAIR, UNPACED)
    assert flat.interval_ms == pytest.approx(busy)
    assert flat.busy["thinker"] == pytest.approx(1.0, rel=0.02)


def test_the_loop_bounds_a_pair_whose_thinker_has_time(make_profile: MakeProfile) -> None:
    loop = 4.3 + 0.05 + 7.2 + 0.05 + WAY_MS + 0.15 + 60.0 + WAY_MS
    flat = simulate(make_profile({"solve": 60.0}), PAIR, UNPACED)
    assert flat.interval_ms == pytest.approx(loop)


def test_two_sessions_in_two_phases_fill_each_others_gaps(make_profile: MakeProfile) -> None:
    """The Performer is busy all the time though either session's loop leaves gaps."""
    flat = simulate(
        make_profile({"solve": 60.0}), PAIR, Workload(sessions=2, phases=2, unpaced=True, jitter=False)
    )
    assert flat.interval_ms == pytest.approx(2 * (60.0 + 2 * 0.15), rel=0.01)
    assert flat.busy["performer"] == pytest.approx(1.0, rel=0.02)


def test_latency_on_the_clock_is_the_sum_of_the_path(make_profile: MakeProfile) -> None:
    eager = simulate(make_profile(), PAIR, ON_CLOCK)
    path = 3.5 + 7.2 + 0.05 + WAY_MS + 0.15 + 15.5 + WAY_MS + 13.8
    assert eager.latency_p50_ms == pytest.approx(path)
    assert eager.latency_p99_ms == pytest.approx(path)
    assert eager.late == 0
    assert eager.units_per_s == pytest.approx(1000 / 160)


def test_the_pair_and_one_process_as_measured(make_profile: MakeProfile) -> None:
    """27.2 ms from unit to unit for the pair and 43 for one process, on two cores with these stages."""
    assert simulate(make_profile(), PAIR, UNPACED).interval_ms == pytest.approx(27.2, rel=0.15)
    assert simulate(make_profile(), ONE_PROCESS, UNPACED).interval_ms == pytest.approx(43.0, rel=0.15)


def test_more_work_than_time_is_late(make_profile: MakeProfile) -> None:
    for cell, stage in ((PAIR, "solve"), (PAIR, "decode"), (ONE_PROCESS, "decode")):
        outcome = simulate(make_profile({stage: 170.0}), cell, ON_CLOCK)
        assert outcome.late > 0.5, (cell, stage)


def test_what_is_never_done_takes_at_least_as_long_as_was_waited(make_profile: MakeProfile) -> None:
    outcome = simulate(make_profile({"solve": 1e6}), PAIR, Workload(units=10))
    assert outcome.late > 0.5
    assert outcome.latency_p50_ms == outcome.interval_ms == 10 * 160


@pytest.mark.parametrize("units", [1, 2, 9])
def test_a_short_run_is_still_a_run(make_profile: MakeProfile, units: int) -> None:
    flat = simulate(make_profile(), ONE_PROCESS, Workload(units=units, unpaced=True, jitter=False))
    assert flat.interval_ms == pytest.approx(44.3)


def test_a_shard_takes_decoding_off_the_thinker(make_profile: MakeProfile) -> None:
    profile = make_profile({"decode": 60.0})
    flat = simulate(profile, Cell(performers=1, shards=1), UNPACED)
    assert flat.interval_ms == pytest.approx(60.0, rel=0.01)
    split = make_profile({"decode": 60.0}, decode_speed_up=((1, 1.0), (2, 1.6)))
    flat = simulate(split, Cell(performers=1, shards=2), UNPACED)
    assert flat.interval_ms == pytest.approx(60.0 / 1.6, rel=0.01)


def test_ranks_solve_faster(make_profile: MakeProfile) -> None:
    profile = make_profile({"solve": 60.0}, rank_speed_up=((1, 1.0), (2, 2.0)))
    one, two = (simulate(profile, Cell(performers=1, ranks=ranks), UNPACED) for ranks in (1, 2))
    assert one.interval_ms - two.interval_ms == pytest.approx(30.0)


def test_an_exchange_counts_bytes(make_profile: MakeProfile) -> None:
    slow = make_profile(exchange=ExchangeCost(fixed_us=0.0, us_per_mb=10_000.0))
    fast = make_profile(exchange=ExchangeCost(fixed_us=0.0, us_per_mb=0.0))
    times = [simulate(profile, PAIR, ON_CLOCK).latency_p50_ms for profile in (slow, fast)]
    assert times[0] - times[1] == pytest.approx(10.0 * (0.135 + 0.004))


def test_busy_neighbours_slow_a_pair_down(make_profile: MakeProfile) -> None:
    crowded = make_profile(slow_down=((1, 1.0), (2, 1.2)))
    alone, beside = (simulate(profile, PAIR, UNPACED).interval_ms for profile in (make_profile(), crowded))
    assert alone < beside < 1.2 * alone
    replicas = simulate(crowded, ONE_PROCESS, Workload(unpaced=True, jitter=False, copies=2))
    assert replicas.interval_ms == pytest.approx(1.2 * 44.3)


def test_jitter_is_the_same_for_the_same_seed(make_profile: MakeProfile) -> None:
    profile = make_profile(spread=1.5)
    first, again, other = (simulate(profile, PAIR, Workload(seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert first.latency_p99_ms > first.latency_p50_ms


@settings(deadline=None, max_examples=40)
@given(ms=costs, factor=st.sampled_from([0.25, 0.5, 4.0]))
def test_time_has_no_scale(make_profile: MakeProfile, ms: dict[str, float], factor: float) -> None:
    """Powers of two, which scale floating-point numbers exactly: no tie is broken in another way."""
    plain = simulate(make_profile(ms), PAIR, Workload(units=30))
    scaled = make_profile(
        {name: factor * value for name, value in ms.items()}, unit_ms=160 * factor,
        exchange=ExchangeCost(fixed_us=130.0 * factor, us_per_mb=0.0),
    )  # fmt: skip
    assert simulate(scaled, PAIR, Workload(units=30)).latency_p50_ms == pytest.approx(
        factor * plain.latency_p50_ms
    )


@settings(deadline=None, max_examples=30)
@given(ms=costs, group=st.integers(1, 3), phases=st.integers(1, 3), gain=st.floats(0.3, 1.0))
def test_nothing_is_faster_than_its_busiest_part(
    make_profile: MakeProfile, ms: dict[str, float], group: int, phases: int, gain: float
) -> None:
    """All groups are alike: otherwise the small ones go ahead, unpaced."""
    profile = make_profile(ms, gain=gain)
    for cell in (ONE_PROCESS, PAIR, Cell(thinkers=2, performers=1), Cell(performers=1, shards=1)):
        sessions = group * phases * cell.thinkers
        load = Workload(sessions=sessions, phases=phases, units=40, unpaced=True, jitter=False)
        bound = max(shares(profile, cell, load).values()) * profile.unit_ms
        assert simulate(profile, cell, load).interval_ms >= 0.95 * bound  # measured over a few units
