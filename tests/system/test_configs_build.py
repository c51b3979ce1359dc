"""Every config that comes with Okapi builds and takes two steps, on tiny data of its layout."""

import re
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from tests.data.small_tokenizer import WORDS, save_tokenizer
from tests.data.wilds.tiny import write_civilcomments, write_iwildcam, write_poverty
from tests.models.tiny import VISION, save
from tests.system.experiments import ALL, CONFIGS, PROJECT, Overrides, config
from tests.system.test_configs import VARIANTS

from okapi.cli import main
from okapi.config import make_config
from okapi.data.wilds import poverty
from okapi.training import estimate, train

FEW = {
    "training.labelled_batch": 2,
    "training.unlabelled_batch": 2,
    "training.evaluation_batch": 2,
    "training.workers": 0,
    "training.accelerator": "cpu",
}
# The network of a variant in the algorithm alone is that of its base, which is built as it is.
SAME_NETWORK = {name for name, (_, differs) in VARIANTS.items() if all(key.startswith("algorithm.") for key in differs)}


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> Overrides:
    """Overrides for a small text model and its vocabulary."""
    tokenizer = save_tokenizer(tmp_path_factory.mktemp("words"))
    size = {"vocabulary": len(WORDS), "layers": 1, "width": 48, "heads": 2, "feed_forward": 32, "out_features": 32}
    return {"data.tokenizer": tokenizer, "data.tokens": 16} | {f"model.{key}": value for key, value in size.items()}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Overrides:
    """Overrides for a small network of pictures."""
    return {"model.backbone": save(tmp_path_factory.mktemp("tiny"), "resnet", VISION["resnet"])}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """The folder that benchmarks/prepare_data.py makes of tiny raw files."""
    raw, out = tmp_path_factory.mktemp("raw"), tmp_path_factory.mktemp("prepared")
    rng = np.random.default_rng(0)
    (raw / "digits").mkdir()
    np.savez(raw / "digits" / "mnist10k.npz", x=rng.integers(0, 256, (60, 28, 28), np.uint8), y=np.arange(60) % 10)
    usps = {f"{part}_data": rng.integers(0, 256, (30, 256), np.uint8) for part in ("train", "test")}
    np.savez(raw / "digits" / "usps.npz", **usps, train_target=np.arange(30) % 10, test_target=np.arange(30) % 10)
    place = (np.arange(90) // 2 % 15).astype(np.float32)
    country = np.array(["tanzania", "uganda", "malawi"])[np.arange(90) // 30]
    hist = rng.integers(0, 99, (90, 8, 102), np.int32)
    np.savez(raw / "lsms_poverty.npz", hist=hist, y=rng.normal(size=90), country=country, lat=place, lon=place)
    texts = [" ".join(rng.choice(WORDS[5:9], 6)) for _ in range(60)]
    domain = np.array(["airline", "books", "blog"])[np.arange(60) // 20]
    pd.DataFrame({"domain": domain, "label": np.arange(60) % 2, "text": texts}).to_csv(
        raw / "sentiment7.csv.gz", index=False
    )
    prepare(raw, out)
    return out


def prepare(raw: Path, out: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PROJECT / "benchmarks")
        import prepare_data
    prepare_data.main([str(raw), str(out)])


@pytest.fixture(scope="module")
def data(tmp_path_factory, words, prepared) -> Iterator[Mapping[str, Overrides]]:
    """For each folder of configs, overrides by which they read a tiny data set of its layout."""
    root = tmp_path_factory.mktemp("data")
    picture = {"data.size": 64, "model.pretrained": None}
    countries = ["kenya"] * 2020 + ["benin", "guinea"] * 6 + ["angola", "mali"] * 6
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(poverty, "SHAPE", (8, 32, 32))
        yield {
            "sites": {"training.evaluation_batch": 256},
            "iwildcam": picture | {"data.root": write_iwildcam(root / "iwildcam")},
            "poverty": {"model.pretrained": None, "data.root": write_poverty(root / "poverty", countries, 23, 32)},
            "civilcomments": words | {"model.pretrained": None, "data.root": write_civilcomments(root / "comments")},
            "pacs": picture | {"data.root": write_pacs(root / "pacs")},
            "pacs_features": {"data.path": write_pacs_features(root / "pacs_features.npz")},
            "lsms": {"data.path": prepared / "lsms.npz"},
            "sentiment": {"data.path": prepared / "sentiment.npz"},
            "digits": {"data.path": prepared / "digits.npz"},
            "sentiment_text": words | {"model.pretrained": None, "data.path": prepared / "sentiment.csv"},
        }


def write_pacs(root: Path) -> Path:
    for number, (domain, label, row) in enumerate(np.ndindex(4, 2, 5)):
        names = ("art_painting", "cartoon", "photo", "sketch"), ("dog", "guitar")
        folder = root / names[0][domain] / names[1][label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 16), (number * 6, label * 99, 0)).save(folder / f"pic_{row}.png")
    return root


def write_pacs_features(path: Path) -> Path:
    rng, rows = np.random.default_rng(0), np.arange(80)
    domain = np.array(["art_painting", "cartoon", "photo", "sketch"])[rows // 20]
    label, names = np.array(["dog", "guitar"])[rows % 2], np.array([f"{row}.png" for row in rows])
    np.savez(path, x=rng.random((80, 12)).astype(np.float16), domain=domain, label=label, path=names)
    return path


@pytest.fixture(scope="module")
def erm_runs(data, tmp_path_factory) -> Callable[[str], Path]:
    """Return a finished ERM run, of a small network, for each folder of configs; made when it is asked for first."""
    root, done = tmp_path_factory.mktemp("erm"), {}

    def run(folder: str) -> Path:
        if folder not in done:
            short = {"training.steps": 1, "training.evaluation_batch": 256}
            content = config(f"{folder}/erm", FEW | data[folder] | short).as_dict()
            if content["model"]["name"] == "vision":
                content["model"] = {"name": "cnn", "width": 4, "out_features": 8}
            train(make_config(content), root / folder)
            done[folder] = root / folder
        return done[folder]

    return run


@pytest.fixture(scope="module")
def overrides(data, erm_runs, tiny) -> Callable[[str], Overrides]:
    """Return what a config is given besides what it says."""
    return lambda name: _overrides(name, data, erm_runs, tiny)


def _overrides(name: str, data: Mapping[str, Overrides], erm_runs: Callable[[str], Path], tiny: Overrides) -> Overrides:
    folder, file = name.split("/")
    given = FEW | data[folder]
    if name in SAME_NETWORK and folder in ("poverty", "iwildcam"):
        given |= tiny
    if file.startswith("okapi"):
        given["algorithm.bank"] = 16
    if file == "offline_okapi":
        given["algorithm.erm_run"] = erm_runs(folder)
    return given


@pytest.mark.filterwarnings("ignore::okapi.matching.propensity.SeparableDomainsWarning")  # so few samples are
@pytest.mark.parametrize("name", ALL)
def test_every_config_builds_and_takes_two_steps(name, overrides):
    found = estimate(config(name, overrides(name)))
    assert isfinite(float(found["Loss"].split()[0]))
    trained, every = (int(count.replace(",", "")) for count in re.findall(r"[\d,]+\d|\d", found["Weights"]))
    assert trained > 0
    assert (every > trained) == (name.split("/")[1].startswith("okapi"))  # the momentum encoder's


def test_the_command_line_trains_from_another_folder(overrides, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = "pacs_features/okapi"
    options = [word for key, value in overrides(name).items() for word in (f"--{key}", str(value))]
    assert main(["train", str(CONFIGS / f"{name}.yaml"), "--dry-run", *options]) == 0
    assert "Whole run" in capsys.readouterr().out
    assert main(["train", str(CONFIGS / f"{name}.yaml"), "--dry-run"]) == 2
    assert "okapi.yaml: data.path is missing; it must be text; give it there or by --data.path PATH" in (
        capsys.readouterr().err
    )


def test_prepared_files_hold_what_they_say(prepared, tmp_path, capsys):
    with np.load(prepared / "digits.npz") as file:
        assert file["x"].shape == (60 + 60 + 1797, 1, 16, 16)
        assert (file["x"].min(), file["x"].max()) == (0, 1)
        assert file["id"][[0, 59, 60]].tolist() == ["mnist-00000", "mnist-00059", "usps-00000"]
    with np.load(prepared / "lsms.npz") as file:
        np.testing.assert_allclose(file["x"].reshape(90, 8, 102).sum(axis=2), 1, rtol=1e-5)
    table = pd.read_csv(prepared / "sentiment.csv")
    with np.load(prepared / "sentiment.npz") as file:
        assert table["domain"].tolist() == file["domain"].tolist() == ["airline"] * 20 + ["books"] * 20
        assert (table["label"].tolist(), table["id"].tolist()) == (file["y"].tolist(), file["id"].tolist())
    assert sorted(path.name for path in prepared.iterdir()) == [
        "digits.npz",
        "lsms.npz",
        "sentiment.csv",
        "sentiment.npz",
    ]
    prepare(tmp_path, tmp_path / "out")
    assert "lsms_poverty.npz does not exist: skipped" in capsys.readouterr().out
