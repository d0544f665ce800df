"""Films: denoiser and decoder alone, both processes, beside the same in one process and beside diffusers.

At the config's own sizes, and at those of Wan 2.1-1.3B with random weights, fewer layers and small pictures.
A device is a core here: one process, or the pair's two, with a compute thread each.
"""

import argparse
import dataclasses
import multiprocessing
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from benchmarks.harness import spawned
from benchmarks.result import BenchResult
from performer.films import perform_films
from shared.config import RuntimeConfig, load_config
from shared.devices import Device
from shared.errors import ConfigError, RuntimeFault
from shared.film_request import FilmRequest, Scene
from shared.links.base import LinkEnd
from shared.models.family import Role
from shared.models.film import makes_films
from shared.models.single_film import make_film
from shared.models.wan.checkpoints import load_strictly, vae_decoder_weights
from shared.models.wan.vae import VaeConfig, VaeMemory, WanVaeDecoder
from shared.processes.model import handshake_params, load_film_model
from shared.processes.rendezvous import RendezvousListener, accept_peers, join_peer
from shared.processes.roles import PERFORMER, THINKER
from shared.processes.secret import new_secret
from shared.reporting import Stages
from thinker.film.engine import Film, FilmEngine, Fragment
from thinker.film.video_encoder import VideoShape, open_encoder

PROMPT = "two red circles move left over a blue sky"
FILMS_CONFIG = "wan-pocket"
WITHIN_S = 1_200.0
LAYERS = 2  # of the real model's thirty
REAL_PICTURE = {"width": 96, "height": 64}
REAL_FRAMES = 45
VAE_LATENTS = 4


def bench(args: argparse.Namespace, console: Console) -> BenchResult:
    """Run all parts and compare."""
    name = FILMS_CONFIG if args.config == "pocket" else args.config
    config = load_config(name)
    if not makes_films(config.family):
        raise ConfigError(f"config {name} makes no films")
    rows: list[dict[str, str | float]] = []
    ratios: dict[str, float | None] = {}
    vae = compare_vae(console)
    for title, ms in vae.items():
        rows.append({"VAE of Wan 2.1, 96x64, bf16": title, "ms a latent": ms, "frames/s": 4e3 / ms})
    ours = vae["streamed here"]
    ratios["vae_speed_over_diffusers"] = vae["diffusers, whole clip"] / ours
    ratios["vae_speed_over_plain_streaming"] = vae["plain: cat and pad"] / ours
    cases = {config.name: (config, args.frames)}
    if not args.small:
        for decoder in ("wan", "taehv"):
            cases[f"1.3B, {decoder}, {args.layers or LAYERS} layers"] = (
                real_shape(decoder, args.layers or LAYERS), REAL_FRAMES,
            )  # fmt: skip
    notes: list[str] = []
    stages: list[dict[str, str | float]] = []
    speeds: list[dict[str, str | float]] = []
    for title, (each, frames) in cases.items():
        console.print(f"{title}: {frames} frames a film")
        figures = measure_case(each, frames)
        stages.append({"a block of": title, **figures.stages()})
        speeds.append({"end to end": title, **figures.speeds()})
        if title == config.name:
            ratios |= figures.ratios()
        else:
            notes.append(
                f"{title}: disaggregated_over_aggregated_2 {figures.pair_over_replicas:.3f},"
                f" interval over the slower stage {figures.interval_over_slower:.3f}"
            )
    ratios["disaggregated_over_aggregated_4"] = None
    notes.append(
        "disaggregated_over_aggregated_4: needs four devices, and one process a side is what there is"
    )
    return BenchResult(rows=[*rows, *stages, *speeds], ratios=ratios, notes=notes)


def real_shape(decoder: str, layers: int) -> RuntimeConfig:
    """Wan 2.1-1.3B with fewer layers and a small picture, random weights."""
    table: dict[str, Any] = {
        **REAL_PICTURE, "window": 6, "decoder": decoder, "text": "pocket",
        "dit": {"layers": layers, "text_len": 512},
    }  # fmt: skip
    return RuntimeConfig(
        name=f"wan-1.3b-{decoder}", family="wan", sessions=2, solve_timeout_s=120.0, model=table
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CaseFigures:
    """What one config gave; seconds for a film of `frames`."""

    frames: int
    blocks: int
    denoise_ms: float
    remember_ms: float
    decode_ms: float
    first_frame_s: float
    pair_s: float
    one_process_s: float
    pair_two_films_s: float
    two_replicas_s: float
    latent_bytes: int

    @property
    def slower_ms(self) -> float:
        """Of a block, in the process that is busier with it."""
        return max(self.denoise_ms + self.remember_ms, self.decode_ms)

    @property
    def interval_over_slower(self) -> float:
        return 1e3 * self.pair_s / self.blocks / self.slower_ms

    @property
    def pair_over_replicas(self) -> float:
        return self.two_replicas_s / self.pair_two_films_s

    def stages(self) -> dict[str, str | float]:
        per_s = self.frames / self.blocks * 1e3
        return {
            "denoise ms": self.denoise_ms, "remember ms": self.remember_ms, "decode ms": self.decode_ms,
            "DiT alone, frames/s": per_s / (self.denoise_ms + self.remember_ms),
            "VAE alone, frames/s": per_s / self.decode_ms, "kB a block": self.latent_bytes / 1e3,
        }  # fmt: skip

    def speeds(self) -> dict[str, str | float]:
        return {
            "pair, frames/s": self.frames / self.pair_s,
            "one process": self.frames / self.one_process_s,
            "pair, 2 films": 2 * self.frames / self.pair_two_films_s,
            "2 processes": 2 * self.frames / self.two_replicas_s,
            "first frame s": self.first_frame_s,
        }  # fmt: skip

    def ratios(self) -> dict[str, float | None]:
        return {
            "disaggregated_over_aggregated_2": self.pair_over_replicas,
            "one_process_over_pair": self.one_process_s / self.pair_s,
            "interval_over_slower_stage": self.interval_over_slower,
            "time_to_first_frame_s": self.first_frame_s,
        }


def measure_case(config: RuntimeConfig, frames: int) -> CaseFigures:
    """The pair with one film and with two; one process; two processes with a film each."""
    config = dataclasses.replace(config, sessions=2)
    with pair_of(config) as pair:
        pair.make(1, min(frames, 33))  # warm
        pair.engine.stages = Stages()  # figures of what follows alone
        pair_s, first_s = pair.make(1, frames)
        stages = pair.engine.stages
        means = {name: stages.mean_ms(name) for name in ("denoise", "remember", "decode", "encode")}
        pair_two_s, _ = pair.make(2, frames)
        blocks = pair.engine.format.blocks(frames)
        latent_bytes = pair.engine.report().latent_bytes
    return CaseFigures(
        frames=frames, blocks=blocks, denoise_ms=means["denoise"],
        remember_ms=means["remember"] * (blocks - 1) / blocks, decode_ms=means["decode"] + means["encode"],
        first_frame_s=first_s, pair_s=pair_s, pair_two_films_s=pair_two_s, latent_bytes=latent_bytes,
        one_process_s=replicas(config, frames, 1), two_replicas_s=replicas(config, frames, 2),
    )  # fmt: skip


class FilmPairBench:
    """This process as the Thinker, a child as the Performer."""

    def __init__(self, engine: FilmEngine) -> None:
        self.engine = engine

    def make(self, films: int, frames: int) -> tuple[float, float]:
        """Make so many films at once; seconds for all of them, and to the first one's first fragment."""
        done = [threading.Event() for _ in range(films)]
        first: list[float] = []
        began = time.monotonic()

        def watcher(number: int) -> Callable[[Fragment], None]:
            def on_fragment(fragment: Fragment) -> None:
                first.append(time.monotonic() - began)
                opened[number].wait()
                self.engine.take(made[number])
                if fragment.block.last:
                    done[number].set()

            return on_fragment

        def end_all(_reason: str) -> None:
            for each in done:
                each.set()

        opened = [threading.Event() for _ in range(films)]
        made = {}
        for number in range(films):
            made[number] = self._open(frames, number, on_fragment=watcher(number), on_end=end_all)
            opened[number].set()
        for each in done:
            if not each.wait(WITHIN_S) or self.engine.fault is not None:
                raise RuntimeFault(f"a film was not finished: {self.engine.fault}")
        return time.monotonic() - began, first[0]

    def _open(
        self,
        frames: int,
        seed: int,
        *,
        on_fragment: Callable[[Fragment], None],
        on_end: Callable[[str], None],
    ) -> Film:
        """A film, once there is room for it: the last run's may not be gone yet."""
        while self.engine.fault is None:
            film = self.engine.open_film(request_of(frames, seed), on_fragment=on_fragment, on_end=on_end)
            if film is not None:
                return film
            time.sleep(0.001)
        raise RuntimeFault(self.engine.fault)


@contextmanager
def pair_of(config: RuntimeConfig) -> Iterator[FilmPairBench]:
    """Both processes of a config."""
    secret = new_secret()
    with RendezvousListener("127.0.0.1", 0, secret=secret, role=THINKER) as listener:
        child = spawned(_perform, config, listener.port, secret)
        family = load_film_model(config, "cpu", Role.THINKER)
        params = handshake_params(family, config, secret=secret)
        links = accept_peers(listener, params, timeout_s=WITHIN_S)
        engine = FilmEngine(family, lambda: links, model=config.name, films=config.sessions)
        model = threading.Thread(target=engine.run)
        model.start()
        while not engine.ready and engine.fault is None:
            time.sleep(0.01)
        try:
            yield FilmPairBench(engine)
        finally:
            engine.stop()
            model.join()
            child.join(10)
            child.kill()


def _perform(config: RuntimeConfig, port: int, secret: str) -> None:
    family = load_film_model(config, "cpu", Role.PERFORMER)
    params = handshake_params(family, config, secret=secret)
    link: LinkEnd
    with join_peer("127.0.0.1", port, params, role=PERFORMER, at=THINKER, timeout_s=WITHIN_S) as link:
        perform_films(family, link, films=config.sessions, stopping=lambda: False)


def replicas(config: RuntimeConfig, frames: int, count: int) -> float:
    """Seconds in which so many processes make a film each, everything in one."""
    context = multiprocessing.get_context("spawn")
    ready, go, times = context.Queue(), context.Event(), context.Queue()
    children = [spawned(_replica, config, frames, ready, go, times) for _ in range(count)]
    try:
        for _ in children:
            ready.get(timeout=WITHIN_S)
        go.set()
        taken: list[float] = [times.get(timeout=WITHIN_S) for _ in children]
    except queue.Empty:
        raise RuntimeFault("a process did not finish its film") from None
    else:
        return max(taken)
    finally:
        for child in children:
            child.kill()
            child.join()


def _replica(config: RuntimeConfig, frames: int, ready: Any, go: Any, times: Any) -> None:
    family = load_film_model(config, "cpu", Role.BOTH)
    encoder = open_encoder(VideoShape(family.format.width, family.format.height, family.format.fps))

    def make(count: int) -> None:
        for block, pictures in make_film(family, request_of(count, 0)):
            encoder.encode(pictures, number=block.number, first_frame=block.first_frame)

    make(min(frames, 33))
    ready.put(True)
    go.wait()
    began = time.monotonic()
    make(frames)
    times.put(time.monotonic() - began)


def request_of(frames: int, seed: int) -> FilmRequest:
    """One scene."""
    return FilmRequest(scenes=(Scene(prompt=PROMPT, frames=frames),), seed=seed, fps=16)


@torch.inference_mode()
def compare_vae(console: Console) -> dict[str, float]:
    """Milliseconds a latent: diffusers whole, its parts latent by latent, ours."""
    try:
        from diffusers import AutoencoderKLWan  # noqa: PLC0415 - of the dev packages
        from diffusers.utils import logging as diffusers_logging  # noqa: PLC0415
    except ModuleNotFoundError:
        raise RuntimeFault("diffusers is missing: pip install 'thinker-performer[dev]'") from None
    console.print(f"VAE of Wan 2.1 at its real widths: {VAE_LATENTS} latents of 96x64")
    diffusers_logging.set_verbosity_error()
    torch.manual_seed(0)
    device = Device()
    theirs: Any = AutoencoderKLWan()  # type: ignore[no-untyped-call]
    theirs = theirs.to(device.dtype).eval()
    decoder = WanVaeDecoder(VaeConfig())
    load_strictly(decoder, vae_decoder_weights(theirs.state_dict(), VaeConfig()), "VAE", "diffusers")
    decoder = device.optimised(decoder)
    rows, columns = REAL_PICTURE["height"] // 8, REAL_PICTURE["width"] // 8
    latents = torch.randn(VAE_LATENTS, 16, rows, columns).to(device.dtype)

    def whole() -> Tensor:
        frames: Tensor = theirs.decode(latents.transpose(0, 1)[None]).sample
        return frames

    def plain() -> None:
        slots = theirs._cached_conv_counts["decoder"]  # noqa: SLF001 - how its parts are streamed
        cache: list[Any] = [None] * slots
        for number, latent in enumerate(latents):
            x = theirs.post_quant_conv(latent[None, :, None])
            theirs.decoder(x, feat_cache=cache, feat_idx=[0], first_chunk=number == 0)

    def ours() -> None:
        memory = VaeMemory()
        for latent in latents:
            decoder.decode(latent, memory)

    works: dict[str, Callable[[], object]] = {
        "diffusers, whole clip": whole, "plain: cat and pad": plain, "streamed here": ours,
    }  # fmt: skip
    best = dict.fromkeys(works, float("inf"))
    for _ in range(3):  # in turn, so that a slower moment of the machine meets all of them
        for title, work in works.items():
            began = time.monotonic()
            work()
            best[title] = min(best[title], 1e3 * (time.monotonic() - began) / VAE_LATENTS)
    return best
