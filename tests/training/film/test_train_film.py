"""`train film` from nothing to weights that the runtime loads, with every stage a few numbers large."""

from pathlib import Path

import pytest
import torch

from scripts.main import main
from shared.config import load_config
from shared.devices import Device
from shared.film_request import FilmRequest, Scene
from shared.models.film import film_builder
from shared.models.single_film import make_film
from training.files import read

SCHEDULE = "steps = {steps}\nhorizon = 4\nwarmup = 1\nsave_every = 2\nevaluate_every = 100\n"
RECIPE = "parts = 2\nfilms = 3\n" + "".join(
    f"[{stage}]\nbatch = 1\n[{stage}.schedule]\n{SCHEDULE}"
    for stage in ("autoencoder", "decoder", "denoiser")
)
STAGES = ("film-autoencoder", "film-decoder", "film-denoiser")
CONFIG = """\
family = "wan"
[model]
width = 160
height = 96
window = 6
decoder = "taehv"
text = "pocket"
[model.dit]
dim = 24
ffn = 32
heads = 2
layers = 1
text_dim = 8
text_len = 7
freq_dim = 16
[model.taehv]
decoder = [8, 8, 8, 8]
"""


def train(folder: Path, *, steps: int) -> int:
    """Train in `folder`, all stages."""
    recipes = folder / "recipes"
    recipes.mkdir(parents=True, exist_ok=True)
    (recipes / "film.toml").write_text(RECIPE.format(steps=steps))
    (folder / "mine.toml").write_text(CONFIG)
    options = {"config": folder / "mine.toml", "runs": folder, "recipes": recipes, "out": folder / "packed"}
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return main(["train", "film", *given])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps of everything, unbroken."""
    folder = tmp_path_factory.mktemp("film")
    assert train(folder, steps=4) == 0
    return folder


def test_the_packed_weights_make_a_film(runs: Path) -> None:
    config = load_config(str(runs / "mine.toml"))
    family = film_builder(config.family, config.model)(
        weights=runs / "packed", device=Device(dtype="float32")
    )
    asked = FilmRequest(scenes=(Scene(prompt="a red star", frames=21),), fps=16)
    frames = [made.shape for _, made in make_film(family, asked)]
    assert frames == [(9, 96, 160, 3), (12, 96, 160, 3)]


def test_an_interrupted_training_equals_an_unbroken_one(runs: Path, tmp_path: Path) -> None:
    assert train(tmp_path, steps=2) == 0
    for stage in STAGES:
        (tmp_path / stage / "final.pt").unlink()
    assert train(tmp_path, steps=4) == 0
    for stage in STAGES[:1]:
        unbroken, resumed = (read(folder / stage / "final.pt") for folder in (runs, tmp_path))
        assert unbroken.keys() == resumed.keys()
        assert all(torch.equal(unbroken[name], resumed[name]) for name in unbroken), stage


def test_what_is_trained_is_not_trained_again(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(runs, steps=4) == 0
    assert capsys.readouterr().out.count("already trained, 4 steps") == 3
