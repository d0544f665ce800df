"""How well the pocket model makes what it is asked for, judged on its frames by rules."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from shared.film_request import FilmRequest, Scene
from shared.models.film import FilmFamily
from shared.models.single_film import make_film
from shared.models.wan.language import SLOTS, Motion, PocketPrompt, read_prompt
from training.film.checker import SPAN, read_film
from training.film.scenes import DrawnFilm, held_out, random_prompt

DIRECTIONS = (Motion.LEFT, Motion.RIGHT, Motion.UP, Motion.DOWN)
FRAMES = 45  # of a judged film: four blocks, two looks of the checker
LONG_FRAMES = 2_000
LONG_PROMPTS = (
    "two red circles move left over a blue sky",
    "three orange fish move right slowly over a blue sea",
    "a large yellow star spins over a black night",
)
SHEET = (
    "two red circles move left over a blue sky",
    "three small purple stars bounce over a green field",
    "a large green triangle moves down slowly over a white wall",
    "two yellow squares spin over a black night",
    "a large blue circle moves up over a yellow desert",
    "three orange fish move right over a blue sea",
    "two red balloons move up slowly over an orange sunset",
    "a white star moves right fast over a black night",
)
SHEET_FRAMES = (0, 8, 16, 24, 32, 40)

Frames = NDArray[np.uint8]
Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FilmMeasure:
    """One row of the card."""

    name: str
    value: float
    goal: float | None = None
    ceiling: float | None = None
    """What the checker gets on drawn films of the same prompts."""
    at_least: bool = True

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal


def judged_prompts(count: int, seed: int = 0) -> list[PocketPrompt]:
    """Combinations that were never trained on, always the same ones."""
    rng = np.random.default_rng((seed, 77))
    return [random_prompt(rng, judged=True) for _ in range(count)]


def film_of(family: FilmFamily, prompt: str, frames: int, seed: int) -> Iterator[Frames]:
    """Its blocks, as both processes make them together."""
    request = FilmRequest(scenes=(Scene(prompt=prompt, frames=frames),), seed=seed, fps=family.format.fps)
    return (made for _, made in make_film(family, request))


def evaluate_words(family: FilmFamily, count: int, told: Told = lambda _: None) -> list[FilmMeasure]:
    """Share of held-out prompts of which the checker sees each word, in the film's two halves."""
    right: dict[str, list[bool]] = {slot: [] for slot in (*SLOTS, "direction")}
    drawn: dict[str, list[bool]] = {slot: [] for slot in (*SLOTS, "direction")}
    steadiness: list[float] = []
    for number, prompt in enumerate(judged_prompts(count)):
        assert held_out(prompt)
        frames = np.concatenate(list(film_of(family, prompt.words(), FRAMES, seed=number)))
        real = DrawnFilm(prompt, number).frames(FRAMES)
        for start in (0, FRAMES - SPAN):
            _compare(right, prompt, read_film(frames[start:]))
            _compare(drawn, prompt, read_film(real[start:]))
        steadiness.append(jump_at_blocks(frames, family))
        told(f"{number + 1} of {count} films")
    goals = {"colour": 0.9, "shape": 0.9, "number": 0.9, "direction": 0.9, "place": 0.9}
    rows = [
        FilmMeasure(slot, _share(right[slot]), goals.get(slot), _share(drawn[slot]))
        for slot in right
        if right[slot]
    ]
    rows.append(
        FilmMeasure("change between blocks / within", float(np.median(steadiness)), 1.25, at_least=False)
    )
    return rows


def _compare(into: dict[str, list[bool]], asked: PocketPrompt, seen: PocketPrompt) -> None:
    for slot in SLOTS:
        into[slot].append(getattr(asked, slot) is getattr(seen, slot))
    if asked.motion in DIRECTIONS:
        into["direction"].append(asked.motion is seen.motion)


def _share(hits: list[bool]) -> float:
    return sum(hits) / len(hits)


def jump_at_blocks(frames: Frames, family: FilmFamily) -> float:
    """How much pictures change where a block begins, as a share of how much they change elsewhere."""
    change = np.abs(np.diff(frames.astype(np.float32), axis=0)).mean((1, 2, 3))
    starts = np.cumsum([family.format.block_frames(n) for n in range(len(frames))])
    border = np.zeros(len(change), bool)
    border[[start - 1 for start in starts if start <= len(change)]] = True
    return float(change[border].mean() / max(change[~border].mean(), 1e-3))


def evaluate_length(family: FilmFamily, frames: int, told: Told = lambda _: None) -> list[FilmMeasure]:
    """Whether a film's end is still what was asked for, and looks like its beginning."""
    hits: dict[str, list[bool]] = {"beginning": [], "end": []}
    drifts: list[float] = []
    for prompt in LONG_PROMPTS:
        asked, _ = read_prompt(prompt)
        parts: list[Frames] = []
        for number, made in enumerate(film_of(family, prompt, frames, seed=1)):
            parts.append(made)
            told(f"{prompt}: block {number + 1}")
        film = np.concatenate(parts)
        quarter = len(film) // 4
        for name, piece in (("beginning", film[:quarter]), ("end", film[-quarter:])):
            for start in range(0, len(piece) - SPAN, SPAN):
                seen = read_film(piece[start:])
                hits[name] += [getattr(asked, slot) is getattr(seen, slot) for slot in SLOTS]
        drifts.append(_drift(film[:quarter], film[-quarter:]))
    return [
        FilmMeasure(f"words seen in the first quarter of {frames} frames", _share(hits["beginning"])),
        FilmMeasure("... in the last quarter", _share(hits["end"]), 0.9),
        FilmMeasure(
            "colour of the last quarter against the first, of 255", max(drifts), 12.0, at_least=False
        ),
    ]


def _drift(first: Frames, last: Frames) -> float:
    """The largest change of a row's mean colour: rows, since things move and places have horizons."""
    means = [piece.astype(np.float32).mean((0, 2)) for piece in (first, last)]
    return float(np.abs(means[0] - means[1]).max())


def write_sheet(family: FilmFamily, path: Path) -> None:
    """Some frames of some films, a row each, with its prompt above."""
    rows = []
    for seed, prompt in enumerate(SHEET):
        film = np.concatenate(list(film_of(family, prompt, max(SHEET_FRAMES) + 1, seed)))
        strip = np.concatenate([film[n] for n in SHEET_FRAMES], axis=1)[..., ::-1]
        title = np.full((16, strip.shape[1], 3), 255, np.uint8)
        cv2.putText(title, prompt, (4, 12), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (40, 40, 40), 1, cv2.LINE_AA)
        rows += [title, strip]
    cv2.imwrite(str(path), np.concatenate(rows))


def as_table(measures: list[FilmMeasure]) -> str:
    """The card's table in Markdown."""
    lines = ["| what is judged | measured | goal | checker on drawn films |", "|---|---|---|---|"]
    for row in measures:
        share = row.value <= 1 and row.at_least
        value = f"{row.value:.1%}" if share else f"{row.value:.2f}"
        goal = "" if row.goal is None else f"{row.goal:.0%}" if share else f"≤ {row.goal:g}"
        mark = {None: "", True: " ✓", False: " **missed**"}[row.met]
        ceiling = "" if row.ceiling is None else f"{row.ceiling:.1%}"
        lines.append(f"| {row.name} | {value}{mark} | {goal} | {ceiling} |")
    return "\n".join(lines)


def to_json(measures: list[FilmMeasure]) -> list[dict[str, object]]:
    """The same for machines."""
    return [dataclasses.asdict(row) | {"met": row.met} for row in measures]
