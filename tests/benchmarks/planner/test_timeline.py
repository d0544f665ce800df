from benchmarks.planner.timeline import Timeline


def test_events_come_in_the_order_of_their_times_then_of_asking() -> None:
    timeline, seen = Timeline(lambda _: 1.0), list[tuple[str, float]]()
    timeline.at(5.0, lambda: seen.append(("b", timeline.now)))
    timeline.work(5.0, 1, lambda: seen.append(("c", timeline.now)))
    timeline.at(2.0, lambda: timeline.after(3.0, lambda: seen.append(("d", timeline.now))))
    timeline.at(1.0, lambda: seen.append(("a", timeline.now)))
    while timeline.advance():
        pass
    assert seen == [("a", 1.0), ("b", 5.0), ("d", 5.0), ("c", 5.0)]


def test_who_works_at_the_same_time_is_slowed_for_just_so_long() -> None:
    """10 ms and 4 ms begun together at half speed: the short one ends at 8, the long one 6 later."""
    timeline, ended = Timeline(float), dict[str, float]()
    timeline.work(10.0, 1, lambda: ended.update(long=timeline.now))
    timeline.work(4.0, 1, lambda: ended.update(short=timeline.now))
    while timeline.advance():
        pass
    assert ended == {"short": 8.0, "long": 14.0}


def test_a_group_of_processors_counts_as_many() -> None:
    timeline, busy = Timeline(lambda n: 1.0 + n), list[float]()
    timeline.work(1.0, 3, lambda: busy.append(timeline.now))
    while timeline.advance():
        pass
    assert busy == [4.0]
