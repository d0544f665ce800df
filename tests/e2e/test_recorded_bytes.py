"""A fixed session gives the bytes that it gave before: in one process, and through a pair.

`recorded_bytes.json` holds digests, and the arithmetic that they hold for: another torch, or a processor with
other instructions, rounds otherwise. What is meant to change bytes records them anew:

    OMP_NUM_THREADS=1 python -m tests.e2e.test_recorded_bytes > tests/e2e/recorded_bytes.json
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.append(str(Path(__file__).parent))

from scripted_sessions import (
    ScriptedPair,
    ScriptedUser,
    hold_session,
    linked_performer,
    unpaced,
    write_config,
)

from shared.config import RuntimeConfig, load_config
from shared.devices.cpu import cpu_flags
from shared.models.family import Family
from shared.models.single import Reply
from shared.processes.model import load_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

UNITS = 32
FILE = Path(__file__).with_name("recorded_bytes.json")
CASES = ("pocket-float32", "pocket-auto", "tiny-float32", "tiny-auto")

Digests = dict[str, str]


def arithmetic() -> dict[str, str]:
    """What decides how numbers are rounded."""
    matrices = {flag for flag in cpu_flags() if flag.startswith(("amx_", "avx512_bf16", "avx512_vnni"))}
    return {
        "torch": torch.__version__,
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "instructions": " ".join(sorted(matrices)),
        "mkl": str(torch.backends.mkl.is_available()),
    }


def digests_of(replies: Iterable[Any]) -> Digests:
    """Of everything that a session gave: each has `decision`, `latents` and `media`."""
    parts = {part: hashlib.sha256() for part in ("text", "latents", "pcm", "frames")}
    for reply in replies:
        decision = reply.decision
        parts["text"].update(f"{decision.text}|{decision.speaking}|{decision.heard}\n".encode())
        parts["latents"].update(reply.latents.numpy().tobytes())
        parts["pcm"].update(reply.media.pcm.tobytes())
        parts["frames"].update(reply.media.frames.tobytes())
    return {part: digest.hexdigest() for part, digest in parts.items()}


def config_of(case: str) -> RuntimeConfig:
    name, dtype = case.split("-")
    return replace(load_config(name), dtype=dtype)


def record() -> dict[str, Any]:
    """What the file holds."""
    digests = {}
    for case in CASES:
        family = load_model(config_of(case), "cpu")
        digests[case] = digests_of(ScriptedUser(family).alone(family, UNITS))
    return {"arithmetic": arithmetic(), "digests": digests}


@pytest.fixture(scope="module")
def recorded() -> dict[str, Digests]:
    """The digests, where they hold."""
    file = json.loads(FILE.read_text(encoding="utf-8"))
    if (here := arithmetic()) != file["arithmetic"]:
        pytest.skip(f"recorded with {file['arithmetic']}, and here is {here}")
    digests: dict[str, Digests] = file["digests"]
    return digests


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Iterator[tuple[str, RuntimeConfig, Family, ScriptedUser]]:
    """A model in a number format, and its users."""
    threads = torch.get_num_threads()
    config = config_of(request.param)
    family = load_model(config, "cpu")
    yield request.param, config, family, ScriptedUser(family)
    torch.set_num_threads(threads)


def test_one_process_gives_the_bytes_that_it_gave_before(recorded: dict[str, Digests], case: Any) -> None:
    name, _, family, user = case
    assert digests_of(user.alone(family, UNITS)) == recorded[name]


def test_a_pair_gives_them_too(
    recorded: dict[str, Digests],
    case: Any,
    groups: Callable[[], AbstractContextManager[Any]],
    secret: str,
    tmp_path: Path,
) -> None:
    name, config, family, user = case
    file = write_config(tmp_path, name.split("-")[0], dtype=config.dtype)
    with linked_performer(groups, secret, family, config, str(file), "shm") as link:
        session = hold_session(ScriptedPair(family, link, user, clock=unpaced()), UNITS)
    replies = [
        Reply(decision=unit.decision, latents=latents, media=unit.media)
        for unit, latents in zip(session.units[:UNITS], session.latents[:UNITS], strict=True)
    ]
    assert digests_of(replies) == recorded[name]


if __name__ == "__main__":
    json.dump(record(), sys.stdout, indent=1)
    sys.stdout.write("\n")
