"""Both halves of the tiny film model over a loopback link, each on a thread as in its own process."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from performer.films import perform_films
from shared.config import load_config
from shared.film_request import FilmRequest, Scene
from shared.links.loopback import loopback_pair
from shared.models.wan.family import WanFamily
from shared.processes.model import film_link_shape, load_film_model
from thinker.film.engine import Film, FilmEngine, Fragment

PROMPT = "two red circles move left over a blue sky"


@pytest.fixture(scope="session")
def tiny() -> WanFamily:
    family = load_film_model(load_config("wan-tiny"), "cpu")
    assert isinstance(family, WanFamily)
    return family


def request(*scenes: tuple[str, int | None], seed: int = 1) -> FilmRequest:
    return FilmRequest(scenes=tuple(Scene(prompt=p, frames=n) for p, n in scenes), seed=seed, fps=16)


@dataclass
class Watched:
    """A film that is being made, and what came of it."""

    film: Film | None = None
    fragments: list[Fragment] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    news: threading.Condition = field(default_factory=threading.Condition)

    def wait(self, condition: Callable[[], bool]) -> None:
        with self.news:
            assert self.news.wait_for(condition, timeout=60)

    def wait_blocks(self, count: int) -> None:
        self.wait(lambda: len(self.fragments) >= count)

    def on_fragment(self, fragment: Fragment) -> None:
        with self.news:
            self.fragments.append(fragment)
            self.news.notify_all()

    def on_end(self, reason: str) -> None:
        with self.news:
            self.reasons.append(reason)
            self.news.notify_all()


class FilmPair:
    """An engine and its Performer."""

    def __init__(self, family: WanFamily, films: int) -> None:
        config = load_config("wan-tiny")
        ours, theirs = loopback_pair(film_link_shape(family, config))
        self.stop_performer = threading.Event()
        self.engine = FilmEngine(family, lambda: {"performer": ours}, model="wan-tiny", films=films)

        def perform() -> None:
            with theirs:
                perform_films(family, theirs, films=films, stopping=self.stop_performer.is_set)

        self._threads = [threading.Thread(target=perform), threading.Thread(target=self.engine.run)]
        for thread in self._threads:
            thread.start()

    def begin(self, asked: FilmRequest, *, takes: bool = True) -> Watched:
        """Begin a film; with `takes` its client takes every block at once."""
        watched = Watched()

        def on_fragment(fragment: Fragment) -> None:
            watched.on_fragment(fragment)
            if takes:
                watched.wait(lambda: watched.film is not None)
                assert watched.film is not None
                self.engine.take(watched.film)

        for _ in range(6000):
            if self.engine.ready:
                break
            threading.Event().wait(0.01)
        film = self.engine.open_film(asked, on_fragment=on_fragment, on_end=watched.on_end)
        assert film is not None
        with watched.news:
            watched.film = film
            watched.news.notify_all()
        return watched

    def close(self) -> None:
        self.engine.stop()
        self.stop_performer.set()
        for thread in self._threads:
            thread.join(timeout=60)
            assert not thread.is_alive()
