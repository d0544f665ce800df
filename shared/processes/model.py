"""The model of a process: torch set up, weights loaded, and what two processes must have in common."""

from shared.chunking import ChunkMode, largest_slice_bytes
from shared.config import RuntimeConfig
from shared.devices import check_device, open_device, settle_threads
from shared.errors import ConfigError
from shared.film_messages import MAX_SCENE_BYTES
from shared.links.base import LinkShape
from shared.links.choose import AUTO, check_link
from shared.memory import retain_heap, trim_heap
from shared.models.family import Builder, Family, Role, model_builder
from shared.models.film import FilmBuilder, FilmFamily, film_builder, makes_films
from shared.models.tensor_parallel import WHOLE, ShardSpec
from shared.processes.rendezvous import HandshakeParams


def load_model(
    config: RuntimeConfig, device: str, role: Role = Role.BOTH, share: ShardSpec = WHOLE
) -> Family:
    """Set up torch for this process and load the model, or what this process needs of it.

    Raises:
        DeviceError: there is no such device.
        ConfigError, CheckpointError: see `load_family`.
    """
    settle_threads(config.threads)
    opened = open_device(device, dtype=config.dtype)
    family = _builder(config, share.ranks)(
        weights=config.weights_folder(), device=opened, role=role, share=share
    )
    trim_heap()
    retain_heap()
    return family


def load_film_model(config: RuntimeConfig, device: str, role: Role = Role.BOTH) -> FilmFamily:
    """As `load_model`, of a config that makes films."""
    settle_threads(config.threads)
    opened = open_device(device, dtype=config.dtype)
    family = _film_builder(config)(weights=config.weights_folder(), device=opened, role=role)
    trim_heap()
    retain_heap()
    return family


def check_choices(config: RuntimeConfig, link: str, *devices: str, ranks: int = 1) -> None:
    """Refuse what can be refused before a model is loaded or a process started.

    Raises:
        ConfigError: a wrong field in the model's table, or one that `ranks` can't share, an unknown link, or
            what is no device.
        LinkUnavailable, DeviceError: not on this machine.
    """
    if makes_films(config.family):
        _film_builder(config)
        if ranks > 1:
            raise ConfigError(f"config {config.name}: films are denoised by one rank, not {ranks}")
    else:
        _builder(config, ranks)
    for device in devices:
        check_device(device)
        check_link(link, device)


def _builder(config: RuntimeConfig, ranks: int) -> Builder:
    try:
        return model_builder(config.family, config.model, ranks=ranks)
    except ConfigError as error:
        raise ConfigError(f"config {config.name}: {error}") from None


def _film_builder(config: RuntimeConfig) -> FilmBuilder:
    try:
        return film_builder(config.family, config.model)
    except ConfigError as error:
        raise ConfigError(f"config {config.name}: {error}") from None


def link_shape(family: Family, config: RuntimeConfig) -> LinkShape:
    """Sizes of the link between Thinker and Performer."""
    return LinkShape(
        to_peer=largest_slice_bytes(family, ChunkMode(config.chunk_mode)),
        from_peer=family.latent_bytes,
        # A batch of all sessions and its committed units can be under way while the Performer works.
        depth=2 * config.sessions + 2,
    )


def film_link_shape(family: FilmFamily, config: RuntimeConfig) -> LinkShape:
    """The same where films are made."""
    # Of each film at most: its end, two credits and two scenes; with as many of the one that follows it.
    return LinkShape(to_peer=MAX_SCENE_BYTES, from_peer=family.latent_bytes, depth=10 * config.sessions)


def handshake_params(
    family: Family | FilmFamily, config: RuntimeConfig, *, secret: str, link: str = AUTO, device: str = "cpu"
) -> HandshakeParams:
    """What both processes must have in common, and where this one computes."""
    films = makes_films(config.family)
    shape = (film_link_shape if films else link_shape)(family, config)  # type: ignore[arg-type]
    return HandshakeParams(secret=secret, digest=family.digest, shape=shape, link=link, device=device)
