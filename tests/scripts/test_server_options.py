"""Options of the served port, the same for `thinker` and `live`: wrong ones are refused in one line."""

import argparse

import pytest

from scripts.main import main
from scripts.thinker import add_server_arguments

WRONG = [
    (["--allow-origin", ""], "--allow-origin: '' is not http://HOST"),
    (["--allow-origin", "*"], "'*' is not"),
    (["--allow-origin", "talk.example"], "'talk.example' is not"),
    (["--allow-origin", "https://"], "'https://' is not"),
    (["--allow-origin", "https://talk.example/"], "'https://talk.example/' is not"),
    (["--allow-origin", "https://talk.example?a"], "'https://talk.example?a' is not"),
    (["--allow-origin", "ftp://talk.example"], "'ftp://talk.example' is not"),
    (["--allow-origin", "http://[1"], "http://[1"),
]


@pytest.mark.parametrize("command", ["thinker", "live"])
@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=[" ".join(row[0]) for row in WRONG])
def test_what_is_wrong_is_one_line(
    capfd: pytest.CaptureFixture[str], command: str, arguments: list[str], words: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, *arguments])
    assert ended.value.code == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"{command}: ")
    assert err.count("\n") == 1
    assert words in err


def test_origins_add_up() -> None:
    parser = argparse.ArgumentParser()
    add_server_arguments(parser)
    given = ["--allow-origin", "https://talk.example", "--allow-origin", "http://[::1]:80"]
    assert parser.parse_args(given).allow_origin == ["https://talk.example", "http://[::1]:80"]
    assert parser.parse_args([]).allow_origin == []


@pytest.mark.parametrize("command", ["thinker", "live"])
@pytest.mark.parametrize("token", ["", "x" * 257])
def test_a_token_that_no_client_could_bring_is_one_line(
    capfd: pytest.CaptureFixture[str], command: str, token: str
) -> None:
    assert main([command, "--config", "tiny", "--port", "0", "--token", token]) == 2
    assert capfd.readouterr().err == f"{command}: token: it must have 1 to 256 characters, not {len(token)}\n"
