"""Encodings of a data set by a trained or pretrained encoder, chunk by chunk: a run that was killed goes on."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from okapi.config import DATA_SETTINGS, Config, ConfigError, named, read_config
from okapi.console import Counting, say
from okapi.data.dataset import Dataset
from okapi.data.io import check_output
from okapi.data.registry import build_dataset
from okapi.data.splits import SPLITS
from okapi.files import remove, replacing
from okapi.models import untrained
from okapi.runs import Run
from okapi.runs.weights import read_weights
from okapi.training.chunks import Chunks, parts_folder
from okapi.training.devices import find_device
from okapi.training.encodings import SUFFIXES, EncodingsFile
from okapi.training.errors import NotFiniteError, RunError
from okapi.training.inference import run_over
from okapi.training.setup import build_network

_CHUNK = 1024  # samples, about, that are lost at most when a run is killed


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """What was written.

    Parameters
    ----------
    path : Path
    samples, width : int
        The shape of the encodings.
    found : int
        Samples whose encodings an earlier run had left.
    seconds : float
    next_steps : str
        How the file is matched and trained on.
    """

    path: Path
    samples: int
    width: int
    found: int
    seconds: float
    next_steps: str


def open_model(
    source: Path, overrides: Sequence[tuple[str, str]] = (), data: Path | None = None, weights: Path | None = None
) -> tuple[Config, Path | None]:
    """Return a config, and the file of the weights to use, if any.

    Parameters
    ----------
    source : Path
        A YAML file; or a run directory, whose config and selected weights are taken.
    overrides : sequence of (key, text)
    data : Path, optional
        What takes the place of ``data.path`` or ``data.root``, whichever the data set has.
    weights : Path, optional
        A ``.safetensors`` file of the network; by default those of the run directory, or none.
    """
    if source.is_dir():
        run = Run(source)
        run.check_begun()
        if weights is None and not run.weights_file.is_file():
            raise ConfigError(
                f"{source} has no {run.weights_file.name}: its run is not finished; or give --weights FILE"
            )
        source, weights = run.config_file, weights or run.weights_file
    if weights is not None and not weights.is_file():
        raise ConfigError(f"weights {weights} do not exist")
    if data is not None:
        overrides = [*overrides, (_place_of_data(source, overrides), str(data))]
    return read_config(source, overrides), weights


def embed(
    config: Config,
    out: Path,
    *,
    weights: Path | None = None,
    splits: Sequence[str] = (),
    normalise: bool = False,
    batch_size: int = 64,
    workers: int | None = None,
    device: str = "auto",
    restart: bool = False,
) -> Embedded:
    """Write the encodings of a data set with ids, domains, splits and targets.

    Chunks are kept in a folder beside ``out`` until all are there. Started again after it was killed, it goes on with
    those it finds, and the file is the same, to the byte, as if it had never stopped.

    Parameters
    ----------
    config : Config
        Its data and its model.
    out : Path
        The file: ``.parquet``, ``.csv`` or ``.npz``. It must not be there yet.
    weights : Path, optional
        A ``.safetensors`` file of the network; by default the weights that the config names, or those of its seed.
    splits : sequence of str
        Which splits; by default all.
    normalise : bool
        Whether encodings are brought to unit length.
    batch_size : int
        Samples at a time.
    workers : int, optional
        Processes that load them; by default as many as the config has for training.
    device : str
        A device of torch, or auto.
    restart : bool
        Whether to begin anew, over whatever is there.
    """
    began = time.monotonic()
    workers = config.training.workers if workers is None else workers
    _check(out, splits, batch_size, workers, restart)
    where = find_device(device)
    dataset = build_dataset(config.data)
    dataset.check()
    rows = _rows(dataset, splits)
    encoder = _encoder(config, dataset, weights).to(where).eval()
    origin = _origin(config, dataset, rows, encoder, normalise=normalise, batch_size=batch_size, device=where.type)
    file = EncodingsFile(dataset, rows, int(encoder.out_features), origin)  # type: ignore[arg-type]
    file.columns()  # what cannot be written is told before the work
    chunks = rows.split(batch_size * max(1, round(_CHUNK / batch_size)))
    with Chunks(out, [len(chunk) for chunk in chunks], file.width).opened(origin, restart) as kept:
        found = sum(len(chunks[number]) for number in kept.found)
        if found:
            say(f"Going on with {found:,} of {len(rows):,} samples, found in {kept.folder}")
        try:
            _fill(kept, chunks, dataset, encoder, normalise, batch_size=batch_size, workers=workers, device=where)
            with replacing(out) as temporary:
                file.write(temporary, kept.blocks(), out.suffix.lower())
        except KeyboardInterrupt:
            say(f"The same command goes on with what is in {kept.folder}")
            raise
        except OSError as error:
            raise RunError(
                f"{error}; what is in {kept.folder} is good. That mended, the same command goes on"
            ) from error
        remove(kept.folder)
    return Embedded(
        path=out,
        samples=len(rows),
        width=file.width,
        found=found,
        seconds=time.monotonic() - began,
        next_steps=file.next_steps(out),
    )


def _check(out: Path, splits: Sequence[str], batch_size: int, workers: int, restart: bool) -> None:
    check_output(out, SUFFIXES)
    if out.exists() and not restart and not parts_folder(out).exists():
        raise ValueError(f"{out} is there already; --restart writes it anew")
    if unknown := [name for name in splits if name not in SPLITS]:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {unknown[0]!r}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if workers < 0:
        raise ValueError(f"workers must be at least 0, got {workers}")


def _place_of_data(source: Path, overrides: Sequence[tuple[str, str]]) -> str:
    """Return the key that says where the data is."""
    name = named(source, "data", overrides)
    known = {field.name for field in fields(DATA_SETTINGS[name])} if name in DATA_SETTINGS else {"path"}
    for key in ("path", "root"):
        if key in known:
            return f"data.{key}"
    raise ConfigError(f"data {name} is in no file or folder, so DATA cannot say where it is")


def _rows(dataset: Dataset, splits: Sequence[str]) -> Tensor:
    chosen = np.isin(np.asarray(dataset.split), splits or SPLITS)
    if not chosen.any():
        raise ValueError(f"split {', '.join(splits)} has no samples")
    return torch.from_numpy(np.flatnonzero(chosen))


def _encoder(config: Config, dataset: Dataset, weights: Path | None) -> nn.Module:
    """Return the encoder. The head of a trained network may be for other classes than the data has."""
    if weights is None:
        if getattr(config.model, "pretrained", None) is None:
            say("Note: the encoder has random weights: neither a run, nor --weights, nor model.pretrained says others")
        return build_network(config, dataset).encoder
    encoder = build_network(replace(config, model=untrained(config.model)), dataset).encoder
    mine, prefix = read_weights(weights), "encoder."
    try:
        encoder.load_state_dict({name[len(prefix) :]: mine[name] for name in mine if name.startswith(prefix)})
    except RuntimeError as error:
        raise ValueError(f"{weights} does not fit the encoder of the config: {' '.join(str(error).split())}") from error
    return encoder


def _origin(config: Config, dataset: Dataset, rows: Tensor, encoder: nn.Module, **options: Any) -> dict[str, Any]:
    """Return all that the encodings depend on, but for the content of the samples."""
    weights = hashlib.sha256()
    for name, tensor in encoder.state_dict().items():
        weights.update(name.encode() + tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    ids = hashlib.sha256("\0".join(dataset.ids[row] for row in rows.tolist()).encode("utf-8", "surrogateescape"))
    sections = config.as_dict()
    return {
        "data": sections["data"],
        "model": sections["model"],
        "weights": weights.hexdigest(),
        "samples": ids.hexdigest(),
        **options,
        "torch": torch.__version__,
    }


def _fill(
    kept: Chunks,
    chunks: Sequence[Tensor],
    dataset: Dataset,
    encoder: nn.Module,
    normalise: bool,
    **options: Any,
) -> None:
    """Encode the chunks that are missing."""
    missing = [number for number in range(len(chunks)) if number not in kept.found]
    total = sum(map(len, chunks))
    left = sum(len(chunks[number]) for number in missing)
    waiting: list[NDArray[np.float32]] = []
    if not missing:
        return
    # All chunks but the last are whole batches, so that no batch has samples of two.
    rows = torch.cat([chunks[number] for number in missing])
    with Counting(total - left, total, "samples") as display:
        for samples, encoding in run_over(encoder, dataset, rows, **options):
            encoding = encoding.float()
            if len(bad := samples.id[~encoding.isfinite().all(1).cpu()]):
                raise NotFiniteError(f"the encoding of sample {dataset.ids[int(bad[0])]} is not finite")
            waiting.append((normalize(encoding, dim=-1) if normalise else encoding).cpu().numpy())
            if sum(map(len, waiting)) == len(chunks[missing[0]]):
                kept.write(missing.pop(0), np.concatenate(waiting))
                waiting = []
            display.add(len(samples))
