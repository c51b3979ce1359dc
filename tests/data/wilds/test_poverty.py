import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from tests.data.wilds.tiny import write_poverty

from okapi.config import PovertySettings
from okapi.data.image_folder import FolderError
from okapi.data.io import TableError
from okapi.data.registry import BUILDERS
from okapi.data.sample_files import ImageError
from okapi.data.task import Task
from okapi.data.wilds.poverty import COUNTRIES, DOMAINS, FOLDS, SHAPE, SatelliteImages, fold_splits, poverty_dataset
from okapi.evaluation import evaluate

COUNTRY = np.array(DOMAINS)[np.arange(5000) % 23]
OURS = {"train": "train", "val": "ood_val", "test": "ood_test", "id_val": "id_val", "id_test": "id_test"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Path:
    return write_poverty(tmp_path_factory.mktemp("wilds"), COUNTRY.tolist())


def settings(root: Path, **changes) -> PovertySettings:
    return PovertySettings(**{"root": str(root), **changes})


def country_of(data) -> np.ndarray:
    return np.array(data.domain_names)[data.domain]


def test_the_folder_is_read(shared):
    data = BUILDERS["poverty"](settings(shared))
    data.check()
    table = pd.read_csv(shared / "poverty_v1.1" / "dhs_metadata.csv")
    assert data.task == Task("regression")
    assert country_of(data)[:5000].tolist() == table["country"].tolist()
    np.testing.assert_array_equal(data.target[:5000].numpy(), table["wealthpooled"].to_numpy(np.float32))
    assert data.group_names == ("rural", "urban")
    assert data.groups[:5000, 1].tolist() == table["urban"].tolist()
    assert (data.groups[:5000].sum(1) == 1).all()
    sample = data.sample(4321)
    assert (sample.shape, sample.dtype) == ((8, 224, 224), torch.float32)
    assert sample[:, 100, 7].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    dark = poverty_dataset(settings(shared, nightlights=False)).sample(4321)
    assert dark[:, 100, 7].tolist() == [1, 2, 3, 4, 5, 6, 7, 0]


def test_countries_are_held_out_by_fold(shared):
    for fold, (test, validation) in FOLDS.items():
        data = poverty_dataset(settings(shared, fold=fold, unlabelled="none"))
        where = {split: set(country_of(data)[data.rows(split)].tolist()) for split in set(data.split.tolist())}
        assert where["ood_test"] == set(COUNTRIES[test])
        assert where["ood_val"] == set(COUNTRIES[validation])
        assert where["train"] == set(DOMAINS) - where["ood_test"] - where["ood_val"]
        assert where["id_val"] | where["id_test"] <= where["train"]
        sizes = Counter(data.split.tolist())
        assert (sizes["id_val"], sizes["id_test"]) == (1000, 1000)
    tested = [name for test, _ in FOLDS.values() for name in COUNTRIES[test]]
    assert sorted(tested) == list(DOMAINS)  # every country once
    assert len(DOMAINS) == 23


# First, last and sum of the rows of id_val and of id_test, as PovertyMapDataset of wilds 2.0.0 draws them of 5,000
# whose countries are the 23 by turns.
DRAWN = {
    "A": ((3, 4996, 2467224), (11, 4994, 2567677)),
    "B": ((10, 4997, 2509639), (4, 4995, 2535292)),
    "C": ((2, 4985, 2564414), (0, 4997, 2473845)),
    "D": ((0, 4999, 2488277), (2, 4995, 2507981)),
    "E": ((5, 4999, 2486090), (2, 4992, 2584562)),
}


@pytest.mark.parametrize("fold", DRAWN)
def test_splits_are_those_of_wilds(fold):
    split = fold_splits(COUNTRY, fold)
    rows = [np.flatnonzero(split == name) for name in ("id_val", "id_test")]
    assert tuple((int(part[0]), int(part[-1]), int(part.sum())) for part in rows) == DRAWN[fold]


def test_the_images_of_ood_val_are_unlabelled_once_more(shared):
    data = poverty_dataset(settings(shared, fold="B"))
    validation = data.rows("ood_val")
    again = data.rows("unlabelled")
    assert len(again) == len(validation) > 0
    assert data.target[again].isnan().all()
    assert not data.target[validation].isnan().any()
    assert torch.equal(data.domain[again], data.domain[validation])
    assert not data.groups[again].any()
    assert [data.ids[row] for row in again] == [f"{data.ids[row]}, unlabelled" for row in validation]
    assert torch.equal(data.sample(int(again[3])), data.sample(int(validation[3])))


@pytest.mark.parametrize("pool", ["train_unlabeled", "val_unlabeled", "test_unlabeled"])
def test_unlabelled_images_are_of_the_countries_asked_for(shared, pool):
    data = poverty_dataset(settings(shared, fold="C", unlabelled=pool))
    data.check()
    split = {"train_unlabeled": "train", "val_unlabeled": "ood_val", "test_unlabeled": "ood_test"}[pool]
    unlabelled = data.rows("unlabelled")
    assert set(data.domain[unlabelled].tolist()) == set(data.domain[data.rows(split)].tolist())
    assert len(unlabelled) == 10 * len(set(data.domain[unlabelled].tolist()))
    assert data.sample(int(unlabelled[0]))[0, 0, 0] == 11  # of the other folder


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="fold must be one of A, B, C, D, E, got 'F'"):
        settings(Path(), fold="F")
    with pytest.raises(ValueError, match=r"unlabelled must be one of ood_val, .*, got 'all'"):
        settings(Path(), unlabelled="all")


# Folders that are not as they must be


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_poverty(tmp_path, ["kenya"] * 2010 + list(DOMAINS), unlabelled=23)


def image(root: Path, row: int) -> Path:
    path = root / "poverty_v1.1" / "images" / f"landsat_poverty_img_{row}.npz"
    path.unlink()
    return path


def test_images_that_are_missing_or_broken_are_named(root):
    image(root, 2032)
    with pytest.raises(ImageError, match=r"1 of 2033 images .*\n  .*landsat_poverty_img_2032.npz does not exist"):
        poverty_dataset(settings(root))
    np.savez(image(root, 7), x=np.zeros((3, 224, 224), dtype=np.float32))
    np.savez(image(root, 8), y=np.zeros((8, 224, 224), dtype=np.float32))
    image(root, 9).write_bytes(b"nonsense")
    np.savez(root / "poverty_v1.1" / "images" / "landsat_poverty_img_2032.npz", x=np.array([object()]))
    some = [f"poverty_v1.1/images/landsat_poverty_img_{row}.npz" for row in (5, 7, 8, 9, 2032)]
    checks = {
        5: SatelliteImages(root, some, settings(root)).check,
        2033: lambda: poverty_dataset(settings(root, verify="headers")),
    }
    for count, check in checks.items():
        with pytest.raises(ImageError, match=f"4 of {count} images cannot be used") as caught:
            check()
        message = str(caught.value)
        assert r"img_7.npz holds float32 of shape (3, 224, 224); floats of shape (8, 224, 224) are wanted" in message
        assert "img_8.npz cannot be read: \"There is no item named 'x.npy' in the archive\"" in message
        assert "img_9.npz cannot be read: File is not a zip file" in message
        assert "img_2032.npz holds object of shape (1,)" in message


def test_a_bomb_is_not_unpacked(root):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (8, 224000, 224000), }"
    length = (len(header) + 1).to_bytes(2, "little")
    with zipfile.ZipFile(image(root, 7), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + length + header + b"\n" + bytes(10**6))
    data = poverty_dataset(settings(root))
    with pytest.raises(ImageError, match=r"img_7.npz holds float32 of shape \(8, 224000, 224000\)"):
        data.sample(7)


def test_a_cache_holds_each_image_once(tmp_path):
    rng = np.random.default_rng(0)
    for name in "ab":
        np.savez_compressed(tmp_path / f"{name}.npz", x=rng.normal(size=SHAPE))
    names, cache = ["b.npz", "a.npz", "b.npz"], str(tmp_path / "cache")
    plain, quick = (SatelliteImages(tmp_path, names, settings(tmp_path, cache=folder)) for folder in (None, cache))
    for row in range(3):
        assert torch.equal(plain[row], quick[row])
    (path,) = (tmp_path / "cache").glob("*.npy")
    assert np.load(path, mmap_mode="r").shape == (2, *SHAPE)
    assert (SatelliteImages(tmp_path, names, settings(tmp_path, cache=cache, nightlights=False))[1][-1] == 0).all()
    assert torch.equal(SatelliteImages(tmp_path, names, settings(tmp_path, cache=cache))[1], plain[1])


def test_wrong_metadata_is_named(root):
    path = root / "poverty_v1.1" / "dhs_metadata.csv"
    table = pd.read_csv(path).astype(object)

    def refused(words: str, column: str, row: int, value: object) -> None:
        changed = table.copy()
        changed.loc[row, column] = value
        changed.to_csv(path, index=False)
        with pytest.raises(TableError, match=rf"^{path}: row {row + 1}, column '{column}'{words}"):
            poverty_dataset(settings(root))

    refused(r" must be one of 'angola', .*'zimbabwe', got 'france'", "country", 3, "france")
    refused(r" must be 0 or 1, got 'suburban'", "urban", 5, "suburban")
    refused(r" is missing", "wealthpooled", 6, None)
    refused(r": 'rich' is not a finite number", "wealthpooled", 6, "rich")
    table[:100].to_csv(path, index=False)
    with pytest.raises(TableError, match=r"too few rows of countries that fold A trains on: more than 2000 are wanted"):
        poverty_dataset(settings(root))
    path.unlink()
    with pytest.raises(FolderError, match=r"has no 'poverty_v1.1/dhs_metadata.csv'. In it must be:\n  poverty_v1.1"):
        poverty_dataset(settings(root))


@pytest.mark.filterwarnings("ignore")
def test_the_package_reads_the_same(shared, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)  # which the package changes for everybody
    theirs = pytest.importorskip("wilds.datasets.poverty_dataset", exc_type=ImportError)
    more = pytest.importorskip("wilds.datasets.unlabeled.poverty_unlabeled_dataset", exc_type=ImportError)
    for fold in FOLDS:
        villages = theirs.PovertyMapDataset(root_dir=str(shared), fold=fold)
        unlabelled = more.PovertyMapUnlabeledDataset(root_dir=str(shared), fold=fold)
        names = {number: name for name, number in villages.split_dict.items()}
        data = poverty_dataset(settings(shared, fold=fold, unlabelled="val_unlabeled"))
        assert data.split[:5000].tolist() == [OURS[names[number]] for number in villages.split_array.tolist()]
        torch.testing.assert_close(data.target[:5000, None], villages.y_array)
        chosen = np.flatnonzero(unlabelled.split_array == unlabelled.split_dict["val_unlabeled"])
        assert [Path(name).name for name in data.ids[5000:]] == [
            f"landsat_poverty_img_{row}.npz, unlabelled" for row in chosen
        ]
    torch.testing.assert_close(data.sample(12), villages.get_input(12))


@pytest.mark.filterwarnings("ignore")
def test_the_package_measures_the_same(shared):
    theirs = pytest.importorskip("wilds.datasets.poverty_dataset", exc_type=ImportError)
    pytest.importorskip("torch_scatter", exc_type=ImportError)
    villages, data = theirs.PovertyMapDataset(root_dir=str(shared)), poverty_dataset(settings(shared))
    prediction = torch.randn(5000, 1, generator=torch.Generator().manual_seed(0))
    results, _ = villages.eval(prediction, villages.y_array, villages.metadata_array)
    ours = evaluate(data.task, prediction, data.target[:5000], data.groups[:5000], data.group_names)
    assert ours["pearson_r_domain_worst"] == pytest.approx(float(results["r_wg"]), abs=1e-5)
    assert ours["mse"] == pytest.approx(float(results["mse_avg"]), abs=1e-5)
