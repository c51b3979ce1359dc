"""A trained model, for samples that it has never seen: arrays, texts, images, files. Its data is not needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from okapi.config import ImageSettings, TokenSettings
from okapi.data.dataset import Dataset, Rows
from okapi.data.features import inputs_from
from okapi.data.images import SUFFIXES, ImageFiles
from okapi.data.io import TableFile, open_table
from okapi.data.text import Texts
from okapi.evaluation import decide, probabilities
from okapi.models import Output
from okapi.runs import Run, Which
from okapi.training.devices import find_device
from okapi.training.inference import predict
from okapi.training.reference import read_reference

Unseen: TypeAlias = NDArray[Any] | Tensor | pd.DataFrame | Sequence[str] | Sequence[Path] | str | Path
"""Inputs (n, ...) as the network takes them; texts; a data frame with the columns of the training data; paths of
images; or the path of a table, an npz file, an image or a folder of images."""


class Predictor:
    """The model of a finished run, which `okapi.load` returns.

    Parameters
    ----------
    run : Path or str
        The run directory, of which ``config.yaml``, ``classes.json``, ``results.json`` and the weights are read.
    which : {"selected", "last"}, default "selected"
    device : str, default "auto"
    batch_size : int, default 256

    Attributes
    ----------
    task : Task
    classes : list of str
        Names of classes or labels; numbers where they have none; empty in regression.
    network : Network
        In evaluation mode, on the device.
    reference : Reference or None
        Labelled samples that others are compared with; those of the selected weights.
    data_folder : Path or None
        Where the training data was.
    """

    def __init__(
        self, run: Path | str, *, which: Which = "selected", device: str = "auto", batch_size: int = 256
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        model = Run(run).trained_model(which=which)
        about = model.run.classes()
        self.run, self.weights, self.notes = model.run, model.weights, model.notes
        self.task, self._inputs = model.task, about["inputs"]
        names = about["classes"] or list(map(str, range(self.task.outputs)))
        self.classes: list[str] = [] if self.task.kind == "regression" else names
        self._id_column = getattr(model.config.data, "id", None)
        place = getattr(model.config.data, "root", None) or getattr(model.config.data, "path", None)
        self.data_folder = None if place is None else Path(place)
        self._device, self._batch_size = find_device(device), batch_size
        self.network = model.network().to(self._device).eval()
        self.reference = read_reference(model.run.reference_file) if which == "selected" else None

    def predict(self, samples: Unseen) -> NDArray[Any]:
        """Return what is predicted: class names (n,), or numbers (n,) or (n, D), or 1 for each likely label (n, C)."""
        return self._decided(self.outputs(self.read(samples), encodings=False).prediction)

    def predict_proba(self, samples: Unseen) -> NDArray[np.float64]:
        """Return the probabilities of classes, or of labels, (n, C)."""
        return probabilities(self.task, self.outputs(self.read(samples), encodings=False).prediction)

    def encode(self, samples: Unseen) -> NDArray[np.float32]:
        """Return encodings (n, d)."""
        return np.asarray(self.outputs(self.read(samples)).encoding.numpy())

    def frame(self, ids: Sequence[str], output: Output) -> pd.DataFrame:
        """Return outputs as a table: id, prediction, probabilities, entropy, domain shift.

        ``domain_shift`` is the distance of the encoding from the nearest labelled sample, in units of the validation
        split's median: a sample far above 1 is unlike anything that was labelled.
        """
        columns: dict[str, Any] = {"id": list(ids)}
        decided = self._decided(output.prediction)
        if decided.ndim == 1:
            columns["prediction"] = decided
        else:
            names = self.classes or range(decided.shape[1])
            columns |= {f"prediction_{name}": decided[:, place] for place, name in enumerate(names)}
        if self.task.kind != "regression":
            probability = probabilities(self.task, output.prediction)
            columns |= {f"probability_{name}": probability[:, place] for place, name in enumerate(self.classes)}
            columns["entropy"] = _entropy(probability, several=self.task.kind == "multilabel")
        if self.reference is not None:
            columns["domain_shift"] = self.reference.nearest(output.encoding.numpy())[0][:, 0]
        return pd.DataFrame(columns)

    def card(self) -> str:
        """Return the model card, Markdown."""
        return self.run.card_file.read_text(encoding="utf-8")

    def outputs(self, dataset: Dataset, rows: Tensor | None = None, *, encodings: bool = True) -> Output:
        """Return encodings and predictions of samples that were read, by default of all."""
        rows = torch.arange(len(dataset)) if rows is None else rows
        options = {"batch_size": self._batch_size, "device": self._device}
        return predict(self.network, dataset, rows, encodings=encodings, **options)

    def read(self, samples: Unseen) -> Dataset:
        """Return samples as a data set, whose targets and domains mean nothing."""
        inputs, ids = self._read(samples)
        if not len(inputs):
            raise ValueError("samples must not be empty")
        unknown = torch.zeros(len(inputs), dtype=torch.int64)
        return Dataset(
            inputs=inputs,
            target=unknown,
            domain=unknown,
            split=["train"] * len(inputs),
            task=self.task,
            domain_names=("",),
            ids=ids if ids is not None else list(map(str, range(len(inputs)))),
        )

    def _decided(self, prediction: Tensor) -> NDArray[Any]:
        decided = decide(self.task, prediction)
        if self.task.kind == "classification":
            return np.array(self.classes)[decided]
        return decided[:, 0] if self.task.kind == "regression" and self.task.outputs == 1 else decided

    def _read(self, samples: Unseen) -> tuple[Tensor | Rows, list[str] | None]:
        """Return inputs (n, ...) as the network takes them, and what they are called, if they have names."""
        kind = self._inputs["kind"]
        if isinstance(samples, Tensor | np.ndarray):
            inputs = torch.as_tensor(samples, dtype=torch.float32)
            if list(inputs.shape[1:]) != self._inputs["shape"]:
                wanted = ", ".join(map(str, ["n", *self._inputs["shape"]]))
                raise ValueError(f"samples must be of shape ({wanted}), got {tuple(inputs.shape)}")
            return inputs, None
        if kind == "images" and not isinstance(samples, pd.DataFrame):
            return self._images([samples] if isinstance(samples, str | Path) else list(samples))
        if isinstance(samples, pd.DataFrame | str | Path):
            if isinstance(samples, pd.DataFrame):
                file = TableFile(pa.Table.from_pandas(samples, preserve_index=False), "samples", first=0)
            else:
                file = open_table(Path(samples), self._inputs.get("separator"))
            read, rows = inputs_from(file, self._inputs)
            return read, self._names(file, rows)
        if kind == "text":
            names = {name: self._inputs[name] for name in ("tokenizer", "tokens")}
            return Texts([str(text) for text in samples], TokenSettings(**names)), None
        raise ValueError(f"samples must be an array or a path, for a model of {kind}; got {type(samples).__name__}")

    def _names(self, file: TableFile, rows: NDArray[np.int64]) -> list[str]:
        """Return the ids of a table's rows, or their numbers where it has no column of the training data's ids."""
        column = self._id_column
        if isinstance(column, str) and column in file.columns:
            return [str(name) for name in file.labels([column])[column].to_numpy()[rows]]
        return [str(row) for row in rows + file.first]

    def _images(self, paths: Sequence[Any]) -> tuple[ImageFiles, list[str]]:
        files, root = [Path(path).absolute() for path in paths], Path("/")
        if len(files) == 1 and files[0].is_dir():
            root = files[0]
            files = sorted(
                path
                for path in root.rglob("*")
                if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
            )
            if not files:
                raise ValueError(f"{root} has no images ({', '.join(SUFFIXES)})")
        wanted = {name: self._inputs[name] for name in ("size", "colour", "fit") if name in self._inputs}
        if "size" not in wanted:
            raise ValueError("samples must be an array: images of this run were no files")
        names = [str(path.relative_to(root)) for path in files]
        shown = names if root != Path("/") else [str(path) for path in paths]
        return ImageFiles(root, names, ImageSettings(**wanted, unreadable="error")), shown


def load(run: Path | str, *, device: str = "auto", batch_size: int = 256) -> Predictor:
    """Return the model of a finished run; neither its data nor any code of its files is needed.

    Parameters
    ----------
    run : Path or str
        The run directory.
    device : str, default "auto"
    batch_size : int, default 256

    Examples
    --------
    >>> model = okapi.load("runs/photos")  # doctest: +SKIP
    >>> model.predict(["new/a.jpg", "new/b.jpg"])  # doctest: +SKIP
    array(['elk', 'okapi'], dtype='<U5')
    """
    return Predictor(run, device=device, batch_size=batch_size)


def _entropy(probability: NDArray[np.float64], several: bool) -> NDArray[np.float64]:
    """Return the entropy in nats of classes, or the sum of those of labels."""

    def term(share: NDArray[np.float64]) -> NDArray[np.float64]:
        return -share * np.log(np.clip(share, 1e-300, None))

    total: NDArray[np.float64] = term(probability).sum(axis=1)
    return total + term(1 - probability).sum(axis=1) if several else total
