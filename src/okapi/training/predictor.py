"""A trained model, for samples that it has never seen: arrays, texts, images, files. Its data is not needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from okapi.config import ImageSettings, TokenSettings
from okapi.data.dataset import Dataset, Rows
from okapi.data.features import inputs_from
from okapi.data.images import SUFFIXES, ImageFiles
from okapi.data.text import Texts
from okapi.evaluation import decide, probabilities
from okapi.models import Output
from okapi.runs import Run, Which
from okapi.training.devices import find_device
from okapi.training.inference import predict

Unseen: TypeAlias = NDArray[Any] | Tensor | Sequence[str] | Sequence[Path] | str | Path
"""Inputs (n, ...) as the network takes them; texts; paths of images; or the path of a table, an npz file, an image or
a folder of images."""


class Predictor:
    """The model of a finished run.

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
    class_names : tuple of str
        Empty where classes have numbers only.
    """

    def __init__(
        self, run: Path | str, *, which: Which = "selected", device: str = "auto", batch_size: int = 256
    ) -> None:
        model = Run(run).trained_model(which=which)
        classes = model.run.classes()
        self.task, self.class_names, self._inputs = model.task, tuple(classes["classes"]), classes["inputs"]
        self._device, self._batch_size = find_device(device), batch_size
        self._network = model.network().to(self._device)

    def predict(self, samples: Unseen) -> NDArray[Any]:
        """Return what is predicted: class names (n,), or numbers (n,) or (n, D), or 1 for each likely label (n, C)."""
        decided = decide(self.task, self._run(samples, encodings=False).prediction)
        if self.task.kind == "classification" and self.class_names:
            return np.array(self.class_names)[decided]
        return decided[:, 0] if self.task.kind == "regression" and self.task.outputs == 1 else decided

    def predict_proba(self, samples: Unseen) -> NDArray[np.float64]:
        """Return the probabilities of classes, or of labels, (n, C)."""
        return probabilities(self.task, self._run(samples, encodings=False).prediction)

    def encode(self, samples: Unseen) -> NDArray[np.float32]:
        """Return encodings (n, d)."""
        return np.asarray(self._run(samples, encodings=True).encoding.numpy())

    def _run(self, samples: Unseen, encodings: bool) -> Output:
        inputs = self._read(samples)
        count = len(inputs)
        unknown = torch.zeros(count, dtype=torch.int64)
        dataset = Dataset(
            inputs=inputs, target=unknown, domain=unknown, split=["train"] * count, task=self.task, domain_names=("",)
        )
        options = {"batch_size": self._batch_size, "device": self._device}
        return predict(self._network, dataset, torch.arange(count), encodings=encodings, **options)

    def _read(self, samples: Unseen) -> Tensor | Rows:
        """Return inputs (n, ...) as the network takes them."""
        kind = self._inputs["kind"]
        inputs: Tensor | Rows
        if isinstance(samples, Tensor | np.ndarray):
            inputs = torch.as_tensor(samples, dtype=torch.float32)
            if list(inputs.shape[1:]) != self._inputs["shape"]:
                wanted = ", ".join(map(str, ["n", *self._inputs["shape"]]))
                raise ValueError(f"samples must be of shape ({wanted}), got {tuple(inputs.shape)}")
        elif kind == "images":
            inputs = self._images([samples] if isinstance(samples, str | Path) else list(samples))
        elif isinstance(samples, str | Path):
            inputs, _ = inputs_from(Path(samples), self._inputs)
        elif kind == "text":
            names = {name: self._inputs[name] for name in ("tokenizer", "tokens")}
            inputs = Texts([str(text) for text in samples], TokenSettings(**names))
        else:
            raise ValueError(f"samples must be an array or a path, for a model of {kind}; got {type(samples).__name__}")
        if not len(inputs):
            raise ValueError("samples must not be empty")
        return inputs

    def _images(self, paths: Sequence[Any]) -> ImageFiles:
        files = [Path(path).absolute() for path in paths]
        if len(files) == 1 and files[0].is_dir():
            files = sorted(path for path in files[0].rglob("*") if path.suffix.lower() in SUFFIXES)
        wanted = {name: self._inputs[name] for name in ("size", "colour", "fit") if name in self._inputs}
        if "size" not in wanted:
            raise ValueError("samples must be an array: images of this run were no files")
        return ImageFiles("/", [str(path.relative_to("/")) for path in files], ImageSettings(**wanted))
