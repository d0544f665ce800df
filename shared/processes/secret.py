"""Secrets by file or environment, where other users of the machine can't read them.

The processes of a deployment share one secret: it lets a process join (`handshake`) and reads the report.
Clients have another, the token.
"""

import os
import secrets
from pathlib import Path

from shared.errors import ConfigError

SECRET_VARIABLE = "THINKER_PERFORMER_SECRET"  # noqa: S105 - the name of one
TOKEN_VARIABLE = "THINKER_PERFORMER_TOKEN"  # noqa: S105
MIN_CHARS = 16  # who listens to a handshake can try short ones out
MAX_CHARS = 256  # what the protocol's hello can carry of a token


def process_secret(file: Path | None = None) -> str:
    """The secret that the processes of this deployment share.

    From `file`, else from the environment, else from a file of this user that is made when it isn't there: so
    two processes of one user on one host need no option.

    Raises:
        ConfigError: it can't be read, others can read it, or it is too short.
    """
    from_environment = os.environ.pop(SECRET_VARIABLE, None)  # not for children that need none
    if file is None and from_environment is not None:
        return _checked(from_environment, SECRET_VARIABLE)
    path = file or default_file()
    if file is None and not path.exists():
        _make(path)
    return _checked(_read(path), str(path))


def client_token(file: Path | None = None, given: str | None = None) -> str | None:
    """The token of clients: from a file, the command line or the environment; None for an open server.

    Raises:
        ConfigError: the file can't be read or others can read it, or the token is empty or too long.
    """
    from_environment = os.environ.pop(TOKEN_VARIABLE, None)
    token = _read(file) if file is not None else from_environment if given is None else given
    if token is not None and not 0 < len(token) <= MAX_CHARS:
        raise ConfigError(f"token: it must have 1 to {MAX_CHARS} characters, not {len(token)}")
    _check_text(token or "", "token")
    return token


def check_different(secret: str, token: str | None) -> None:
    """Refuse a token that is the secret: every client could then read the report.

    Raises:
        ConfigError: they are the same.
    """
    if token == secret:
        raise ConfigError("token: it is the secret of the processes: clients could read the report")


def launch_secret() -> str:
    """For processes that one command starts: a fresh one, unless the environment has one."""
    given = os.environ.pop(SECRET_VARIABLE, None)
    return new_secret() if given is None else _checked(given, SECRET_VARIABLE)


def new_secret() -> str:
    """A random one."""
    return secrets.token_hex(32)


def default_file() -> Path:
    """Where a user's processes have their secret."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "thinker-performer" / "secret"


def _make(path: Path) -> None:
    """Write a new secret, unless another process is first; never half of one."""
    mine = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(new_secret() + "\n")
        try:
            os.link(mine, path)
        except FileExistsError:
            pass
        finally:
            mine.unlink()
    except OSError as error:
        raise ConfigError(
            f"secret: {path} can't be made ({error.strerror}): set {SECRET_VARIABLE} or give --secret-file"
        ) from None


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            text = file.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"{path}: can't be read: {why}") from None
    if status.st_mode & 0o077:
        raise ConfigError(f"{path}: others can read this secret: chmod 600 {path}")
    if status.st_uid not in {os.geteuid(), 0}:
        raise ConfigError(f"{path}: this secret belongs to another user (uid {status.st_uid})")
    return text


def _check_text(value: str, where: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{where}: it is no text: it must be UTF-8") from None


def _checked(secret: str, where: str) -> str:
    _check_text(secret, f"secret: {where}")
    if len(secret) < MIN_CHARS:
        raise ConfigError(f"secret: {where} holds {len(secret)} characters, {MIN_CHARS} are the least")
    return secret
