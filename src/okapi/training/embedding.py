"""Encodings of a data set by a trained or pretrained encoder; one that was killed is resumed."""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

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
from okapi.files import locked, remove, remove_unfinished, replacing, write_json
from okapi.models import untrained
from okapi.runs import Run
from okapi.runs.weights_file import read_weights
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

    Encodings are kept in a folder beside ``out`` until all are there. A command that was killed, started again, resumes
    from those it finds, and the file is the same, to the byte, as if it had never stopped.

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
    file.columns()  # what cannot be written is reported before the work
    folder = parts_folder(out)
    folder.mkdir(exist_ok=True)
    with locked(folder, f"{out} is being written by another process"):
        partial = Partial(folder, (len(rows), file.width), origin, restart)
        if found := partial.done:
            say(f"Resuming with {found:,} of {len(rows):,} samples, found in {folder}")
        try:
            options = {"batch_size": batch_size, "workers": workers, "device": where}
            for encodings in _encode(encoder, dataset, rows[found:], found, normalise, **options):
                partial.append(encodings)
            with replacing(out) as temporary:
                file.write(temporary, partial.encodings, out.suffix.lower())
        except KeyboardInterrupt:
            say(f"The same command resumes from what is in {folder}")
            raise
        except OSError as error:
            raise RunError(f"{error}; what is in {folder} is good. Repair that and repeat the command") from error
        remove(folder)
    return Embedded(
        path=out,
        samples=len(rows),
        width=file.width,
        found=found,
        seconds=time.monotonic() - began,
        next_steps=file.next_steps(out),
    )


def parts_folder(out: Path) -> Path:
    """Return the folder beside a file in which its encodings are kept until all are there."""
    return out.with_name(f"{out.name}.parts")


class Partial:
    """What a network makes of n samples, kept on the disk; the first ``done`` rows are there after a kill, too.

    Parameters
    ----------
    folder : Path
        Locked by this process.
    shape : (int, int)
    origin : mapping
        All that the rows depend on; one that differs from what is there is rejected, but for ``restart``.
    restart : bool

    Attributes
    ----------
    encodings : array (n, d), float32
        Mapped.
    done : int
    """

    def __init__(self, folder: Path, shape: tuple[int, int], origin: Mapping[str, Any], restart: bool) -> None:
        self._state, self._origin, self.done = folder / "origin.json", json.loads(json.dumps(origin)), 0
        remove_unfinished(folder)
        file = folder / "encodings.npy"
        if self._state.exists() and file.exists() and not restart:
            before = json.loads(self._state.read_text(encoding="utf-8"))
            if changed := [key for key, value in self._origin.items() if before.get(key) != value]:
                raise ValueError(
                    f"{folder} holds encodings of other {' and '.join(changed)}: give --restart to begin anew, or the "
                    "command that they were begun with"
                )
            self.done = before["done"] if file.stat().st_size == before["size"] else 0
        mode: Literal["r+", "w+"] = "r+" if self.done else "w+"
        self.encodings = np.lib.format.open_memmap(file, mode, np.float32, shape)
        self._size = file.stat().st_size

    def append(self, encodings: NDArray[np.float32]) -> None:
        """Keep the next encodings (m, d)."""
        self.encodings[self.done : self.done + len(encodings)] = encodings
        self.encodings.flush()
        self.done += len(encodings)
        write_json(self._state, {**self._origin, "done": self.done, "size": self._size})


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


def _encode(
    encoder: nn.Module, dataset: Dataset, rows: Tensor, found: int, normalise: bool, **options: Any
) -> Iterator[NDArray[np.float32]]:
    """Yield the encodings of rows, of whole batches, about as many at a time as may be lost if a run is killed."""
    waiting: list[NDArray[np.float32]] = []
    if not len(rows):
        return
    with Counting(found, found + len(rows), "samples") as display:
        for samples, encoding in run_over(encoder, dataset, rows, **options):
            if len(bad := samples.id[~encoding.isfinite().all(1).cpu()]):
                raise NotFiniteError(f"the encoding of sample {dataset.ids[int(bad[0])]} is not finite")
            encoding = encoding.float()
            waiting.append((normalize(encoding, dim=-1) if normalise else encoding).cpu().numpy())
            display.add(len(samples))
            if sum(map(len, waiting)) >= _CHUNK:
                yield np.concatenate(waiting)
                waiting = []
    if waiting:
        yield np.concatenate(waiting)
