import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.planner.compare import compare
from benchmarks.planner.profile import Profile
from shared.errors import ConfigError

MakeProfile = Callable[..., Profile]
ONE_PROCESS_MS = 3.5 + 7.2 + 15.5 + 13.8 + 4.3


def test_every_known_layout_is_predicted(make_profile: MakeProfile, tmp_path: Path) -> None:
    rows = [
        {"sessions": 1, "layout": "pair", "units/s": 40.0},
        {"sessions": 1, "layout": "one process, 1 thread", "units/s": 20.0},
        {"sessions": 1, "layout": "one process, 2 threads", "units/s": 25.0},
        {"sessions": 4, "layout": "pair, 2 phases", "units/s": 40.0},
        {"sessions": 4, "layout": "two replicas", "units/s": 44.0},
        {"process": "Thinker", "resident, MB": 300.0},
    ]
    path = tmp_path / "layouts.json"
    path.write_text(json.dumps({"name": "layouts", "rows": rows}))
    pair, one, phases, replicas = compare(make_profile(), path, 40)
    assert pair.predicted == pytest.approx(1000 / 28.9, rel=0.01)
    assert one.predicted == pytest.approx(1000 / ONE_PROCESS_MS)
    assert one.error == pytest.approx(50 / ONE_PROCESS_MS - 1)
    assert phases.sessions == 4
    assert replicas.predicted == pytest.approx(2 * 1000 / ONE_PROCESS_MS)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"rows": [{"layout": "pair"}]}', '{"rows": []}', "3"])
def test_another_file_is_refused(make_profile: MakeProfile, tmp_path: Path, content: str) -> None:
    path = tmp_path / "layouts.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"layouts\.json"):
        compare(make_profile(), path, 20)


def test_a_file_that_is_not_there_is_named(make_profile: MakeProfile, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        compare(make_profile(), tmp_path / "nowhere.json", 20)
