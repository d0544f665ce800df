"""What all benches share: arguments, tables, what is said about the machine, and how they are broken off."""

from typing import Any

import pytest
from rich.console import Console

from benchmarks.result import BenchResult, machine, show
from scripts.bench import BENCHES
from scripts.main import main


def test_machine_says_what_figures_depend_on() -> None:
    assert {"cpu", "cores", "isa", "threads per process", "pinning", "load", "torch", "python"} <= set(
        machine()
    )
    assert machine("auto")["pinning"] in {"none (auto)", "a core each (auto)"}


def test_rows_with_the_same_columns_make_a_table() -> None:
    console = Console(width=80, record=True)
    rows: list[dict[str, str | float]] = [
        {"ms": "solve", "p50": 1.234},
        {"ms": "send", "p50": 2.0},
        {"MB": 7},
    ]
    show(console, BenchResult(rows=rows, ratios={"a_over_b": 1.5, "c": None}, notes=["said so"]))
    lines = console.export_text().splitlines()
    assert sum("┏" in line for line in lines) == 2
    assert any("solve" in line and "1.23" in line for line in lines)
    assert [line.split() for line in lines[-3:]] == [["a_over_b", "1.500"], ["c", "-"], ["said", "so"]]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nonsense"], "invalid choice"),
        (["pair", "--units", "0"], "not a whole number"),
        (["history", "--hours", "-1"], "not a number of hours"),
        (["history", "--hours", "nan"], "not a number of hours"),
        (["history", "--sessions", "0"], "not a whole number"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", *arguments])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["pair", "--hours", "3"], "--hours is for bench history alone, not for pair"),
        (["plan", "--layers", "2"], "--layers is for bench exchange and group and wan alone, not for plan"),
    ],
)
def test_options_of_other_benches_are_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_help_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    told = capsys.readouterr().out
    assert all(f"{name}: " in " ".join(told.split()) for name in BENCHES)


@pytest.mark.slow
def test_ctrl_c_ends_it_and_its_processes_without_a_word(group: Any) -> None:
    bench = group.start_at_terminal("bench", "history", "--config", "tiny", "--hours", "100")
    bench.wait_for("costliest")
    bench.type(b"\x03")
    assert bench.wait() == 130
    assert "Traceback" not in bench.output
    group.assert_nothing_left()
