"""``okapi predict``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from okapi.console import Counting, say
from okapi.data.io import check_output
from okapi.files import locked, remove, replacing, write_bytes

if TYPE_CHECKING:
    from okapi.models import Output
    from okapi.training import Predictor

STDOUT = Path("-")
SUFFIXES = (".csv", ".parquet", ".jsonl")
NEIGHBOURS = 3
_CHUNK = 1_024  # samples that are lost at most when a run is killed


def predict(
    run: Path,
    data: Path,
    *,
    out: Path,
    explain: Path | None = None,
    batch_size: int = 64,
    device: str = "auto",
    restart: bool = False,
) -> None:
    """Predict for new samples, and write a row for each.

    Parameters
    ----------
    run : Path
        Directory of a finished run.
    data : Path
        A table, an npz file, an image or a folder of images.
    out : Path
        CSV, parquet or JSON lines; ``-`` prints CSV.
    explain : Path, optional
        Report with the nearest labelled samples of the most unusual rows.
    batch_size : int
    device : str
    restart : bool
        Whether to begin anew, over whatever is there.
    """
    if out != STDOUT:
        check_output(out, SUFFIXES)
    if explain is not None:
        check_output(explain, (".html",))
    if not data.exists():
        raise ValueError(f"{data} does not exist")
    from okapi.training import Predictor
    from okapi.training.embedding import parts_folder

    if out != STDOUT and out.exists() and not restart and not parts_folder(out).exists():
        raise ValueError(f"{out} is there already; --restart writes it anew")
    model = Predictor(run, device=device, batch_size=batch_size)
    for note in model.notes:
        say(f"Note: {note}")
    ids, output = _outputs(model, data, out, restart)
    frame = model.frame(ids, output)
    if out == STDOUT:
        frame.to_csv(sys.stdout, index=False)
    else:
        with replacing(out) as temporary:
            _write(frame, temporary, out.suffix.lower())
        remove(parts_folder(out))
        print(f"{out}: {len(frame):,} predictions")
    if explain is not None:
        write_bytes(explain, _explained(model, frame, output, data).encode())
        say(f"Report: {explain}")
    _warn(model, frame)


def _outputs(model: "Predictor", data: Path, out: Path, restart: bool) -> "tuple[list[str], Output]":
    """Return the ids of the samples and what the model makes of them, chunk by chunk; a killed command is resumed."""
    import torch

    from okapi.models import Output
    from okapi.training.embedding import Partial, parts_folder

    dataset = model.read(data)
    width = int(model.network.encoder.out_features)  # type: ignore[arg-type]
    shape = (len(dataset), width + model.task.outputs)
    if out == STDOUT:
        return list(dataset.ids), model.outputs(dataset)
    origin = {"model": model.weights.sha256, "data": str(data.resolve()), "samples": len(dataset)}
    folder = parts_folder(out)
    folder.mkdir(exist_ok=True)
    with locked(folder, f"{out} is being written by another process"):
        partial = Partial(folder, shape, origin, restart)
        if partial.done:
            say(f"Resuming: {partial.done:,} of {len(dataset):,} samples are done")
        with Counting(partial.done, len(dataset), "samples") as shown:
            for part in torch.arange(partial.done, len(dataset)).split(_CHUNK):
                output = model.outputs(dataset, part)
                partial.append(torch.cat([output.encoding, output.prediction], dim=1).numpy())
                shown.add(len(part))
        together = torch.from_numpy(np.array(partial.encodings))
    return list(dataset.ids), Output(together[:, :width], together[:, width:])


def _explained(model: "Predictor", frame: pd.DataFrame, output: "Output", data: Path) -> str:
    """Return the report of the most unusual samples and their nearest labelled ones."""
    from okapi.report.predictions import Labelled, explanation, unusual

    reference = model.reference
    if reference is None:
        raise ValueError(f"{model.run.reference_file} does not exist: the nearest labelled samples are not known")
    rows = unusual(frame["domain_shift"].to_numpy())
    distance, index = reference.nearest(output.encoding.numpy()[rows], NEIGHBOURS)
    labelled = Labelled(reference.id[index], reference.label[index], distance, model.data_folder)
    return explanation(frame, rows, labelled, data, classes=model.task.kind == "classification")


def _write(frame: pd.DataFrame, path: Path, suffix: str) -> None:
    if suffix == ".parquet":
        frame.to_parquet(path, index=False)
    elif suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True, force_ascii=False)
    else:
        frame.to_csv(path, index=False)


def _warn(model: "Predictor", frame: pd.DataFrame) -> None:
    """Say where predictions deserve no trust: samples unlike all that was labelled, or one class for all."""
    if model.reference is None:
        say("Note: the run has no reference.npz, so there is no domain_shift")
    elif (far := float((frame["domain_shift"] > 3).mean())) > 0.1:
        say(
            f"Warning: {far:.0%} of the samples are more than 3 times as far from the nearest labelled sample as "
            "validation samples are: the model may be wrong about them. See the column domain_shift"
        )
    if model.task.kind == "classification" and len(frame) >= 20 and frame["prediction"].nunique() == 1:
        say(f"Warning: all {len(frame):,} samples are predicted {frame['prediction'].iloc[0]!r}")
