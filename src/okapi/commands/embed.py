"""``okapi embed``."""

from collections.abc import Sequence
from pathlib import Path

from okapi import training


def embed(
    config: Path,
    data: Path | None = None,
    *,
    out: Path,
    weights: Path | None = None,
    split: Sequence[str] = (),
    normalise: bool = False,
    batch_size: int = 64,
    workers: int | None = None,
    device: str = "auto",
    restart: bool = False,
    overrides: Sequence[tuple[str, str]] = (),
) -> None:
    """Write the encodings of a data set to a file, and print what to do with them.

    Parameters
    ----------
    config : Path
        A config or a run directory.
    data : Path, optional
        File or folder of the data, by default the config's.
    out : Path
    weights : Path, optional
        Weights of the network.
    split : sequence of str
        Only samples of these splits.
    normalise, batch_size, workers, device, restart
        As `okapi.training.embed` takes them.
    overrides : sequence of (key, text)
        Keys of the config.
    """
    model, chosen = training.open_model(config, list(overrides), data, weights)
    done = training.embed(
        model,
        out,
        weights=chosen,
        splits=split,
        normalise=normalise,
        batch_size=batch_size,
        workers=workers,
        device=device,
        restart=restart,
    )
    print(f"{done.path}: {done.samples:,} encodings of {done.width:,} numbers in {done.seconds:,.0f} s")
    print(done.next_steps)
