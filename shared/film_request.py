"""What a film shall show, and how that divides into blocks."""

from collections.abc import Iterator
from dataclasses import dataclass

from shared.models.film import FilmFormat


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """One prompt and how many frames it lasts; None: until the film is stopped."""

    prompt: str
    frames: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class FilmRequest:
    """A whole film. The same request and seed give the same frames."""

    scenes: tuple[Scene, ...]
    seed: int = 0
    fps: int

    @property
    def frames(self) -> int | None:
        """Of all scenes; None: until it is stopped."""
        known = [scene.frames for scene in self.scenes if scene.frames is not None]
        return sum(known) if len(known) == len(self.scenes) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class FilmBlock:
    """One block of a film: what it belongs to, and which of its frames are shown."""

    number: int
    """Through the film."""
    scene: int
    of_scene: int
    """Its number within the scene."""
    first_frame: int
    """Through the film."""
    frames: int
    """How many of those that it decodes to are shown; fewer than all where a scene ends within it."""
    last_of_scene: bool
    last: bool


def blocks_of(request: FilmRequest, shape: FilmFormat) -> Iterator[FilmBlock]:
    """All blocks of a film in order; without end where it has none."""
    number = shown = 0
    for index, scene in enumerate(request.scenes):
        of_scene, left = 0, scene.frames
        while left is None or left > 0:
            frames = shape.block_frames(of_scene)
            frames = frames if left is None else min(frames, left)
            left = None if left is None else left - frames
            yield FilmBlock(
                number=number, scene=index, of_scene=of_scene, first_frame=shown, frames=frames,
                last_of_scene=left == 0, last=left == 0 and index + 1 == len(request.scenes),
            )  # fmt: skip
            number, of_scene, shown = number + 1, of_scene + 1, shown + frames
