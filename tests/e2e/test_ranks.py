"""Several Performer ranks, as the processes that they are, give what one gives, but for rounding."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from shared.checkpoint import config_digest, save_weights
from shared.config import load_config
from shared.links.base import LinkEnd
from shared.models.family import Family, UserUnit
from shared.models.layout import KVBlock
from shared.models.pocket.config import PocketConfig
from shared.models.pocket.network.weights import PocketWeights
from shared.models.solver import unit_noise
from shared.processes.model import handshake_params, load_model
from shared.processes.rendezvous import RendezvousListener, accept_peers
from shared.processes.roles import THINKER
from shared.slices import Flags, Kind, SliceHeader
from shared.tables import from_table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WITHIN_S = 60.0
SEEDS = (3, 4, 5)
ROUNDS = 30  # more than what is remembered, also of the session that begins last
# Of any number of a unit's latents, and root mean square of all. Ranks add up in another order than one
# does, in bfloat16 from parts of 8 bits: that is as far from one rank as one rank is from float32.
TOLERANCE = {"float32": (1e-4, 1e-5), "bfloat16": (0.5, 0.03)}

ReportOf = Callable[[str], dict[str, Any]]


def config_like(name: str, folder: Path, dtype: str = "float32") -> Path:
    """A shipped config with a slot for each seed, in a dtype that every machine has."""
    text = resources.files("configs").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^(sessions|phases) = .*$", "", text)
    path = folder / "ranks.toml"
    path.write_text(f'sessions = {len(SEEDS)}\ndtype = "{dtype}"\n{text}', encoding="utf-8")
    return path


def tiny_of(heads: int, folder: Path) -> Path:
    """The same of `tiny`, with so many heads that share nothing, and weights that do something."""
    path = config_like("tiny", folder)
    text = path.read_text(encoding="utf-8")
    text = text.replace("kv_heads = 1", f"kv_heads = {heads}").replace("\nheads = 2", f"\nheads = {heads}")
    path.write_text(f'weights = "{folder}"\n{text}', encoding="utf-8")
    config = from_table(PocketConfig, load_config(str(path)).model, "model")
    torch.manual_seed(heads)
    weights = PocketWeights(config)
    network = weights.network
    for linear in (network.picture_out, network.sound_out, network.flow_time.write):
        torch.nn.init.normal_(linear.weight, std=0.3)  # they begin at zero: what is solved would be the noise
    for block in network.transformer.blocks:
        torch.nn.init.normal_(block.out.weight, std=0.3)
        torch.nn.init.normal_(block.down.weight, std=0.3)
    save_weights(weights, folder, config_digest(config), dtype=torch.float32)
    return path


class Talk:
    """The Thinker's part of some sessions, by hand; each begins two units after the one before."""

    def __init__(self, family: Family, link: LinkEnd) -> None:
        self._family, self._link = family, link
        memory = family.allocate(len(SEEDS))
        self._states = [family.init_state(memory, slot, seed) for slot, seed in enumerate(SEEDS)]
        for slot, seed in enumerate(SEEDS):
            self._send(Kind.RESET, slot, 0, Flags.NONE, torch.tensor([seed, slot]).view(torch.uint8))

    def round(self, number: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """One unit of all sessions that have begun: one rank's latents, their noise, the group's latents."""
        slots = [slot for slot in range(len(SEEDS)) if number >= 2 * slot]
        states, units = [self._states[slot] for slot in slots], [number - 2 * slot for slot in slots]
        users = [self._user(slot, unit) for slot, unit in zip(slots, units, strict=True)]
        self._family.state_pass(states, units, users, self._family.encode(states, users))
        self._send_slices(KVBlock.STATE, slots, units)
        own = self._family.solve(states, units)
        for slot, unit, expected in zip(slots, units, own, strict=True):
            header, payload = self._link.receiver.receive(WITHIN_S)
            assert header.session == slot
            noise = unit_noise(SEEDS[slot], unit, tuple(expected.shape))
            yield expected, noise, payload.view(torch.float32).clone()
            self._link.receiver.release()
        self._family.commit(states, units, own)  # the same history for both
        self._send_slices(KVBlock.COMMIT, slots, units)

    def _user(self, slot: int, unit: int) -> UserUnit:
        media, rng = self._family.media, np.random.default_rng((slot, unit))
        shape = (media.frames_per_unit, media.input_height, media.input_width, 3)
        return UserUnit(
            pcm=(0.1 * rng.standard_normal(media.input_unit_samples)).astype(np.float32),
            frames=rng.integers(0, 255, shape, dtype=np.uint8),
            texts=("Good morning.",) if unit == 0 else (),
        )

    def _send_slices(self, block: KVBlock, slots: list[int], units: list[int]) -> None:
        for slot, unit in zip(slots, units, strict=True):
            out = torch.empty(self._family.slice_bytes(block), dtype=torch.uint8)
            self._family.export_kv(self._states[slot], block, unit, out)
            more = Flags.NONE if slot == slots[-1] else Flags.MORE
            self._send(Kind[block.name], slot, unit, more | Flags.CHECKED, out)

    def _send(self, kind: Kind, session: int, unit: int, flags: Flags, payload: Tensor) -> None:
        self._link.sender.reserve(WITHIN_S)[: payload.nbytes] = payload
        header = SliceHeader(kind=kind, session=session, unit=unit, flags=flags, payload_bytes=payload.nbytes)
        self._link.sender.send(header)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def assert_same(group: Any, path: Path, ranks: int, secret: str) -> None:
    config = load_config(str(path))
    family, (worst, on_average) = load_model(config, "cpu"), TOLERANCE[config.dtype]
    with RendezvousListener("127.0.0.1", 0, secret=secret, role=THINKER) as listener:
        address = f"127.0.0.1:{listener.port}"
        performer = group.start(
            "performer", "--config", str(path), "--rendezvous", address, "--ranks", str(ranks), "--debug"
        )
        with accept_peers(
            listener, handshake_params(family, config, secret=secret, link="auto"), timeout_s=120
        )["performer"] as link:
            assert len(group.pids("performer")) == ranks
            talk = Talk(family, link)
            for number in range(ROUNDS):
                for expected, noise, latents in talk.round(number):
                    assert (expected - noise).std() > 0.3, "the solve does something"
                    error = (latents - expected).abs()
                    assert error.max() <= worst
                    assert error.square().mean().sqrt() <= on_average
        assert performer.wait() == 1, performer.output
    assert performer.output.splitlines()[-1] == "performer: the thinker has ended"
    assert "Traceback" not in performer.output
    group.assert_nothing_left()


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_give_what_one_gives(group: Any, tmp_path: Path, ranks: int, secret: str) -> None:
    assert_same(group, tiny_of(ranks, tmp_path), ranks, secret)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_two_ranks_of_the_shipped_model(group: Any, tmp_path: Path, dtype: str, secret: str) -> None:
    assert_same(group, config_like("pocket", tmp_path, dtype), 2, secret)


def test_a_session_through_a_group(group: Any, tmp_path: Path) -> None:
    live = group.start(
        "live", "--config", str(tiny_of(2, tmp_path)), "--performer-ranks", "2", "--port", "0", "--text",
        "hello", "--seconds", "2",
    )  # fmt: skip
    assert live.wait() == 0, live.output
    group.assert_nothing_left()
    assert re.search(r"^hello \n", live.output, re.MULTILINE)
    assert "performer:" not in live.output, "all is well, and nothing to tell"


def test_ctrl_c_while_a_group_waits_for_its_thinker(group: Any, tmp_path: Path) -> None:
    performer = group.start_at_terminal("performer", "--config", str(tiny_of(2, tmp_path)), "--ranks", "2")
    performer.wait_for("performer: 2 ranks are there")
    assert len(group.pids("performer")) == 2
    performer.type(b"\x03")
    assert performer.wait() == 0, performer.output
    group.assert_nothing_left()
    assert "Traceback" not in performer.output


@pytest.mark.parametrize("killed", [0, 1], ids=["the leader", "a follower"])
def test_kill_9_of_a_rank(
    group: Any, tmp_path: Path, report_of: ReportOf, eventually: Callable[..., None], killed: int
) -> None:
    config = tiny_of(2, tmp_path)
    live = group.start(
        "live", "--config", str(config), "--performer-ranks", "2", "--port", "0", "--text", "hi", "--seconds",
        "600",
    )  # fmt: skip
    url = live.wait_for(r"the agent is at (http://\S+)\n")[1]
    eventually(lambda: report_of(url)["units"]["emitted"] >= 6, "a few units")
    ranks = sorted(group.pids("performer"))  # the leader starts first
    assert len(ranks) == 2
    os.kill(ranks[killed], signal.SIGKILL)
    assert live.wait() == 1, live.output
    group.assert_nothing_left()
    assert "thinker: the performer has gone away" in live.output
    if killed:
        assert re.search(r"performer: rank 0 of 2, unit \d+: rank 1 was ended by signal 9\n", live.output)
    assert "Traceback" not in live.output


def test_a_rank_that_is_stuck(
    group: Any, tmp_path: Path, report_of: ReportOf, eventually: Callable[..., None]
) -> None:
    config = tiny_of(2, tmp_path)
    config.write_text(f"solve_timeout_s = 4.0\n{config.read_text()}")
    live = group.start(
        "live", "--config", str(config), "--performer-ranks", "2", "--port", "0", "--text", "hi", "--seconds",
        "600",
    )  # fmt: skip
    url = live.wait_for(r"the agent is at (http://\S+)\n")[1]
    eventually(lambda: report_of(url)["units"]["emitted"] >= 6, "a few units")
    os.kill(max(group.pids("performer")), signal.SIGSTOP)
    assert live.wait() == 1, live.output
    group.assert_nothing_left()
    assert re.search(r"performer: rank 0 of 2, unit \d+: rank 1 did not answer within 2 s\n", live.output)
    assert "Traceback" not in live.output


def test_what_ranks_can_not_share_is_refused(group: Any) -> None:
    performer = group.start("performer", "--config", "tiny", "--ranks", "2")
    assert performer.wait() == 2
    why = "config tiny: transformer: kv_heads=1 can't be split over 2 ranks evenly"
    assert performer.output == f"performer: {why}\n"
