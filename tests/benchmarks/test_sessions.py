"""`bench sessions`: how the number of sessions is looked for, and a whole run with hardly any."""

import json
from pathlib import Path

import pytest

from benchmarks import sessions
from benchmarks.real_time import Held
from benchmarks.sessions import search
from scripts.main import main
from shared.clock import ManualClock
from thinker.engine.timings import Timings


def held(sessions: int, *, most: int) -> Held:
    late = 0.0 if sessions <= most else 0.5
    return Held(
        sessions=sessions,
        late=late,
        thinker_busy=0.5,
        performer_busy=0.5,
        timings=Timings(ManualClock(), one_host=True),
    )


@pytest.mark.parametrize("first", [1, 5, 24, 64])
@pytest.mark.parametrize("most", [0, 1, 9, 63, 64, 100])
def test_the_search_ends_between_held_and_not_held(first: int, most: int) -> None:
    tried = {each.sessions: each.late for each in search(lambda n: held(n, most=most), first, 64)}
    if most:
        assert tried[min(most, 64)] == 0.0
    if most < 64:
        assert tried[most + 1] > 0
    assert all(1 <= sessions <= 64 for sessions in tried)


def test_a_good_guess_needs_few_tries() -> None:
    assert len(search(lambda n: held(n, most=15), 14, 64)) <= 3
    assert len(search(lambda n: held(n, most=12), 14, 64)) <= 4


@pytest.mark.slow
def test_a_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 2)
    monkeypatch.setattr(sessions, "PHASES", (2,))
    monkeypatch.setattr(sessions, "LATE", 2.0)  # whatever else this machine does now
    out = tmp_path / "sessions.json"
    command = ["bench", "sessions", "--config", "tiny", "--units", "4", "--seconds", "1"]
    assert main([*command, "--json", str(out)]) == 0
    content = json.loads(out.read_text())
    assert content["ratios"]["sessions_held"] == 2
    assert content["ratios"]["solve_4_slots_over_1"] > 0
    latency = [content["ratios"][f"model_side_p{p}_ms_of_sessions_held"] for p in (50, 99)]
    assert 0 < latency[0] <= latency[1], "a number of sessions says at which latency they are held"
    assert any(note.startswith("held: under") and "measured through" in note for note in content["notes"])
    rows = content["rows"]
    assert [row["batched"] for row in rows if "batched" in row][-1] == "decode one by one"
    assert {row["held"] for row in rows if "held" in row} == {"yes"}
    (served,) = (row for row in rows if "by the server" in row)
    assert served["by the server"].endswith("of 4 clients")
    assert served["thinker cpu %"] > 0
