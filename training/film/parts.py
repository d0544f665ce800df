"""Train the stages of the pocket film model one after the other, each from where it was left.

A stage's folder under `runs/` holds `checkpoint.pt`, `log.jsonl`, a sample, and at its end `final.pt`.
"""

from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor, nn

from shared.checkpoint import FILE, config_digest, load_weights, save_weights
from shared.models.wan.config import WanConfig
from shared.models.wan.decoders import LatentScale
from shared.models.wan.family import WanWeights
from training.context import TrainRun
from training.errors import TrainingError
from training.files import read
from training.film.autoencoder import Autoencoder, train_autoencoder
from training.film.denoiser import Denoiser, latent_scale, train_denoiser
from training.film.latents import LatentFilms, part_of
from training.film.recipes import FilmRecipe, StageRecipe
from training.loop import CHECKPOINT
from training.recipes import load_recipe

ENCODER = Path(__file__).parent / "weights" / "encoder.safetensors"
"""Of the weights that ship: what the denoiser's latents are made with. The runtime needs none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FilmContext:
    """What the stages are trained with: sizes, folders, device."""

    model: WanConfig
    runs: Path
    recipes: Path | None = None
    base: Path | None = None
    """Checkpoint folder that the denoiser begins from, and what was not trained is taken from."""
    device: str = "cpu"
    resume: bool = True

    def recipe(self) -> FilmRecipe:
        return load_recipe(FilmRecipe, "film", self.recipes)

    def run(self, stage: str, recipe: StageRecipe) -> TrainRun:
        return TrainRun(self, f"film-{stage}", recipe.schedule)


def autoencoder(context: FilmContext) -> None:
    """Frames to latents and back."""
    recipe = context.recipe().autoencoder
    run = context.run("autoencoder", recipe)
    if not run.is_done:
        run.finish(train_autoencoder(run.config, context.model.taehv, batch=recipe.batch, resume=run.resumes))


def decoder(context: FilmContext) -> None:
    """Latents to frames further, for an encoder that stays as it is."""
    recipe = context.recipe().decoder
    run = context.run("decoder", recipe)
    if not run.is_done:
        trained = train_autoencoder(
            run.config, context.model.taehv, batch=recipe.batch, resume=run.resumes,
            frozen_encoder=_autoencoder(context),
        )  # fmt: skip
        run.finish(trained)


def denoiser(context: FilmContext) -> None:
    """Prompts to latents."""
    recipe = context.recipe()
    run = context.run("denoiser", recipe.denoiser)
    if run.is_done:
        return
    coder = _autoencoder(context)
    network = train_denoiser(
        run.config, context.model.dit, coder.encoder, coder.decoder, context.runs / "data",
        parts=recipe.parts, films=recipe.films, batch=recipe.denoiser.batch, resume=run.resumes,
        start=None if run.resumes else _base_denoiser(context),
    )  # fmt: skip
    run.finish(network)


STAGES = {"autoencoder": autoencoder, "decoder": decoder, "denoiser": denoiser}


def pack(context: FilmContext, out: Path) -> Path:
    """Write `out`/model.safetensors for the runtime.

    Of a stage that is still in training the averaged weights of its last checkpoint are taken.

    Raises:
        TrainingError: a stage was never begun.
    """
    weights = WanWeights(context.model)
    coder, network = _autoencoder(context), Denoiser(context.model.dit)
    network.load_state_dict(_trained(context, "denoiser"))
    weights.dit, weights.text = network.dit, network.text
    weights.scale = _scale(context, coder)
    refined = _trained(context, "decoder", required=False)
    if refined:
        coder.load_state_dict(refined)
    weights.decoder = coder.decoder
    path = save_weights(weights, out, config_digest(context.model))
    print(f"pack: wrote {path}, {path.stat().st_size / 1e6:.1f} MB")
    return path


def _scale(context: FilmContext, coder: Autoencoder) -> LatentScale:
    films = context.recipe().films

    def part(number: int) -> LatentFilms:
        return part_of(context.runs / "data", coder.encoder, number, films=films)

    return latent_scale(part, context.model.dit)


def _autoencoder(context: FilmContext) -> Autoencoder:
    """That of these runs; else the encoder that ships, with the base checkpoint's decoder."""
    coder = Autoencoder(context.model.taehv)
    begun = context.runs / "film-autoencoder" / CHECKPOINT
    base = _base_weights(context)
    if begun.exists() or base is None or not ENCODER.exists():
        coder.load_state_dict(_trained(context, "autoencoder"))
    else:
        coder.encoder.load_state_dict(load_file(ENCODER))
        coder.decoder.load_state_dict(base.decoder.state_dict())
    return coder.eval()


def _base_weights(context: FilmContext) -> WanWeights | None:
    if context.base is None or not (context.base / FILE).exists():
        return None
    weights = WanWeights(context.model)
    load_weights(weights, context.base, config_digest(context.model))
    return weights


def _base_denoiser(context: FilmContext) -> nn.Module | None:
    weights = _base_weights(context)
    if weights is None:
        return None
    network = Denoiser(context.model.dit)
    network.dit, network.text = weights.dit, weights.text
    return network


def _trained(context: FilmContext, stage: str, *, required: bool = True) -> dict[str, Tensor]:
    folder = context.runs / f"film-{stage}"
    if (folder / "final.pt").exists():
        return read(folder / "final.pt", context.device)
    if (folder / CHECKPOINT).exists():
        saved = read(folder / CHECKPOINT, context.device)
        print(f"film-{stage}: still in training, at step {saved['step']}")
        average: dict[str, Tensor] = saved["average"]
        return average
    if required:
        raise TrainingError(f"{folder} holds nothing yet: run `train film` first")
    return {}
