"""The command `thinker-performer`: finds the subcommand, parses its arguments, runs it."""

import argparse
import importlib
import os
import sys
from typing import NoReturn

from shared.errors import ConfigError, RuntimeFault

COMMANDS = {
    "live": "start both processes and talk to the agent (or let a media file talk)",
    "thinker": "one process: listens, watches, keeps the state, decodes, serves the page and clients",
    "performer": "the other process: makes the agent's next picture and sound",
    "generate": "make a film from text and save it",
    "client": "talk to a running Thinker from the terminal",
    "bench": "measure: prints a table, and both sides of every claim as a ratio",
    "train": "train the parts of the pocket models",
    "evaluate": "measure how well the pocket models do what their cards say",
}
# OpenMP reads these when torch is loaded. On a busy machine compute threads that spin while they wait keep
# each other from working: a p99 of 900 ms where sleeping ones have 32.
PASSIVE_THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, and not the whole usage before it."""
        self.exit(2, f"{self.prog}: {message} ({self.prog} --help tells more)\n")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit code: 0 done, 1 failed, 2 wrong arguments or config."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name = arguments[0] if arguments else ""
    if name not in COMMANDS:
        return _overview(name)
    for variable, value in PASSIVE_THREADS.items():
        os.environ.setdefault(variable, value)
    try:
        module = importlib.import_module(f"scripts.{name}")
        parser = _Parser(prog=name, formatter_class=argparse.RawDescriptionHelpFormatter)
        module.add_arguments(parser)
        return int(module.run(parser.parse_args(arguments[1:])))
    except ConfigError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except RuntimeFault as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _overview(name: str) -> int:
    wanted = name in {"", "-h", "--help"}
    stream = sys.stdout if wanted else sys.stderr
    if not wanted:
        print(f"thinker-performer: there is no command {name!r}", file=stream)
    print("usage: thinker-performer COMMAND [options]     (COMMAND --help tells more)\n", file=stream)
    for command, what in COMMANDS.items():
        print(f"  {command:<10} {what}", file=stream)
    return 0 if wanted and name else 2


if __name__ == "__main__":
    sys.exit(main())
