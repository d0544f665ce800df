"""Secrets: from files that nobody else can read, or from the environment."""

import stat
from pathlib import Path

import pytest

from shared.errors import ConfigError
from shared.processes.secret import (
    SECRET_VARIABLE,
    TOKEN_VARIABLE,
    check_different,
    client_token,
    default_file,
    launch_secret,
    process_secret,
)

SECRET = "sixteen characters"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    return tmp_path


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def test_two_processes_of_one_user_need_no_option() -> None:
    first, second = process_secret(), process_secret()
    assert first == second
    assert len(first) == 64
    assert stat.S_IMODE(default_file().stat().st_mode) == 0o600
    assert [path.name for path in default_file().parent.iterdir()] == ["secret"], "no half-made one is left"


def test_a_file_goes_before_the_environment_and_that_before_the_users_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "from the environment")
    assert process_secret(written(home / "s", f"{SECRET}\n")) == SECRET
    monkeypatch.setenv(SECRET_VARIABLE, "from the environment")
    assert process_secret() == "from the environment"
    assert not default_file().exists()


def test_no_child_inherits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "from the environment")
    process_secret()
    assert process_secret() != "from the environment"


def test_a_launcher_makes_a_fresh_one() -> None:
    assert launch_secret() != launch_secret()
    assert not default_file().exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_what_others_can_read_is_refused(home: Path, mode: int) -> None:
    path = written(home / "s", SECRET, mode)
    with pytest.raises(ConfigError, match=f"others can read this secret: chmod 600 {path}"):
        process_secret(path)
    with pytest.raises(ConfigError, match="others can read"):
        client_token(path)


def test_what_is_too_short_or_not_there_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="holds 5 characters, 16 are the least"):
        process_secret(written(home / "s", "short"))
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        process_secret(home / "nothing")
    monkeypatch.setenv(SECRET_VARIABLE, "")
    with pytest.raises(ConfigError, match=f"{SECRET_VARIABLE} holds 0 characters"):
        process_secret()


def test_where_none_can_be_made_it_says_what_to_do(home: Path) -> None:
    written(home / "config", "a file where a folder should be")
    with pytest.raises(ConfigError, match=f"can't be made .*: set {SECRET_VARIABLE} or give --secret-file"):
        process_secret()


def test_a_token_comes_from_file_option_or_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client_token() is None
    monkeypatch.setenv(TOKEN_VARIABLE, "env")
    assert client_token(None, "option") == "option"
    monkeypatch.setenv(TOKEN_VARIABLE, "env")
    assert client_token() == "env"
    assert client_token(written(home / "t", "file\n"), "option") == "file"


@pytest.mark.parametrize("token", ["", "x" * 257])
def test_a_token_that_no_client_could_bring_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="token: it must have 1 to 256 characters"):
        client_token(None, token)


def test_a_token_that_is_the_secret_is_refused() -> None:
    check_different("a" * 16, None)
    check_different("a" * 16, "b" * 16)
    with pytest.raises(ConfigError, match="it is the secret of the processes"):
        check_different("a" * 16, "a" * 16)


def test_what_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    no_text = b"\xff\xfe0123456789abcdef".decode(errors="surrogateescape")  # as the environment gives it
    monkeypatch.setenv(SECRET_VARIABLE, no_text)
    with pytest.raises(ConfigError, match=f"secret: {SECRET_VARIABLE}: it is no text"):
        process_secret()
    monkeypatch.setenv(TOKEN_VARIABLE, no_text)
    with pytest.raises(ConfigError, match="token: it is no text"):
        client_token()
