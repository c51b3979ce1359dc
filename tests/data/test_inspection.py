import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter
from tests.data.test_duplicates import scene
from tests.data.test_images import bomb
from tests.data.wilds.tiny import write_civilcomments, write_iwildcam, write_poverty

from okapi.config import ImageFolderSettings, PovertySettings, TableSettings
from okapi.data.arrays import from_arrays
from okapi.data.dataset import Dataset
from okapi.data.image_folder import FolderError
from okapi.data.inspection import inspect_dataset
from okapi.data.io import TableError
from okapi.data.recognition import Roles, recognise
from okapi.data.registry import unchecked_dataset
from okapi.data.splits import SeenDomainWarning
from okapi.data.task import Task
from okapi.data.wilds.poverty import SatelliteImages


def inspected(path, near=6, **roles):
    dataset, left_out = unchecked_dataset(recognise(path, Roles(**roles)))
    return inspect_dataset(dataset, near, left_out)


def arrays(**changes) -> Dataset:
    """Return six samples of three domains; the fifth repeats the first, the last has no target."""
    X = np.array([[0.0, 1], [2, 3], [4, 5], [6, 7], [-0.0, 1], [8, 9]])
    given = {
        "target": [0, 1, 1, 0, 1, -1],
        "domain": ["a", "a", "b", "b", "c", "c"],
        "split": ["train", "train", "train", "id_val", "ood_test", "unlabelled"],
        "ids": list("uvwxyz"),
    }
    return from_arrays(X, **(given | changes))


# Counts


def test_samples_by_split_domain_and_class():
    found = inspect_dataset(arrays())
    splits = found.splits()
    assert splits["samples"].to_dict() == {"train": 3, "unlabelled": 1, "id_val": 1, "ood_test": 1}
    assert splits["without"].to_dict() == {"train": 0, "unlabelled": 1, "id_val": 0, "ood_test": 0}
    assert splits["domains"].to_dict() == {"train": 2, "unlabelled": 1, "id_val": 1, "ood_test": 1}
    assert found.domains().loc["b"].to_dict() == {"train": 1, "unlabelled": 0, "id_val": 1, "ood_test": 0, "all": 2}
    assert found.classes()["all"].to_dict() == {"1": 3, "0": 2}
    assert found.samples()["target"].tolist() == ["0", "1", "1", "0", "1", ""]


def test_equal_numbers_are_a_leak_and_it_is_named():
    found = inspect_dataset(arrays())
    by_split = found.duplicates_by_split().to_dict("records")
    assert by_split == [{"split": "ood_test", "of": "train", "exact": 1, "near": 0}]
    pair = found.pairs(found.across_splits).to_dict("records")[0]
    assert (pair["id"], pair["other_id"], pair["kind"]) == ("y", "u", "exact")
    assert found.samples()["problem"].tolist()[4] == "exact duplicate of u in train"


def test_domains_of_train_in_an_ood_split():
    with pytest.warns(SeenDomainWarning):
        found = inspect_dataset(arrays(domain=["a", "a", "b", "b", "b", "a"]))
    assert found.shared_domains() == {"unlabelled": ["a"], "ood_test": ["b"]}
    assert inspect_dataset(arrays()).shared_domains() == {}


def test_targets_of_a_regression():
    y = np.random.default_rng(0).normal(size=200)
    y[-20:] = np.nan
    split = ["train"] * 100 + ["ood_test"] * 80 + ["unlabelled"] * 20
    domain = np.repeat(["a", "b"], 100)
    X = np.arange(400.0).reshape(200, 2)
    found = inspect_dataset(from_arrays(X, y, domain=domain, split=split, task="regression"))
    table = found.targets().set_index("split")
    assert list(table.index) == ["train", "ood_test"]
    assert table.loc["train", "mean"] == pytest.approx(np.float32(y[:100]).mean(), abs=1e-6)
    assert table.loc["train", "deviation"] == pytest.approx(y[:100].std(ddof=1), abs=1e-6)
    assert table.loc["ood_test", "50%"] == pytest.approx(np.median(y[100:180]), abs=1e-6)
    assert sum(table.loc["train", "histogram"]) == 100
    assert found.targets("domain")["samples"].tolist() == [100, 80]
    assert found.class_names == ()


def test_sets_of_domains_and_several_labels():
    data = Dataset(
        inputs=torch.arange(8.0).reshape(4, 2),
        target=torch.tensor([[1.0, 0], [1, 1], [0, 0], [0, 1]]),
        domain=torch.tensor([[True, True], [True, False], [False, False], [False, True]]),
        split=["train", "train", "train", "ood_test"],
        task=Task("multilabel", 2),
        domain_names=("a", "b"),
        class_names=("dog", "cat"),
    )
    found = inspect_dataset(data)
    assert found.domains()["all"].to_dict() == {"a": 2, "b": 2, "(none)": 1}
    assert found.classes()["all"].to_dict() == {"dog": 2, "cat": 2}
    assert found.samples()["target"].tolist() == ["dog", "dog, cat", "", "cat"]
    assert found.samples()["domain"].tolist() == ["a, b", "a", "", "b"]
    assert found.shared_domains() == {}


@pytest.mark.parametrize("near", [-1, 17])
def test_bits_that_make_no_sense_are_refused(near):
    with pytest.raises(ValueError, match="near must be from 0 to 16 bits"):
        inspect_dataset(arrays(), near)


# Pictures


@pytest.fixture
def photos(tmp_path):
    """Pictures of two domains and two classes, none like another."""
    for number, (domain, name) in enumerate([(d, c) for d in ("oslo", "rome") for c in ("cat", "dog")] * 3):
        folder = tmp_path / "photos" / domain / name
        folder.mkdir(parents=True, exist_ok=True)
        scene(number).save(folder / f"{number}.png")
    return tmp_path / "photos"


def test_the_same_pixels_are_exact_whatever_the_file_and_a_recompressed_copy_is_near(photos):
    original = photos / "oslo" / "cat" / "0.png"
    with Image.open(original) as image:
        image.save(photos / "rome" / "dog" / "again.tif")
        image.convert("RGBA").save(photos / "rome" / "dog" / "opaque.png")
        image.resize((90, 90)).save(photos / "rome" / "dog" / "worse.jpg", quality=50)
        image.transpose(Image.Transpose.ROTATE_90).save(photos / "rome" / "cat" / "turned.png")
    found = inspected(photos, held_out=["rome"])
    pairs = found.pairs(found.across_splits).set_index("id")
    kinds = {"rome/dog/again.tif": "exact", "rome/dog/opaque.png": "exact", "rome/dog/worse.jpg": "near"}
    assert pairs["kind"].to_dict() == kinds
    assert set(pairs["other_id"]) == {"oslo/cat/0.png"}


def test_pictures_are_turned_as_they_are_looked_at(photos):
    with Image.open(photos / "oslo" / "cat" / "0.png") as image:
        exif = Image.Exif()
        exif[0x0112] = 6
        image.crop((0, 0, 128, 80)).save(photos / "rome" / "cat" / "lying.png", exif=exif)
    sizes = inspected(photos).sizes()
    assert sizes.iloc[0].to_dict() == {"width": 128, "height": 128, "mode": "RGB", "images": 12}
    assert sizes.iloc[1].to_dict() == {"width": 80, "height": 128, "mode": "RGB", "images": 1}


def test_flat_and_small_pictures_are_compared_exactly_only(photos):
    for number in range(6):
        Image.new("RGB", (100, 100), (number, 90, 90)).save(photos / "oslo" / "cat" / f"flat{number}.png")
        scene(0).resize((30, 30)).save(photos / "oslo" / "dog" / f"small{number}.jpg", quality=30 + 5 * number)
    Image.new("RGB", (100, 100), (3, 90, 90)).save(photos / "rome" / "cat" / "flat.png")
    found = inspected(photos)
    assert found.pairs(found.duplicates)[["id", "other_id", "kind"]].values.tolist() == [
        ["rome/cat/flat.png", "oslo/cat/flat3.png", "exact"]
    ]


def test_broken_files_are_told_and_all_else_is_counted(photos):
    cut = photos / "oslo" / "cat" / "cut.jpg"
    scene(50).save(cut)
    cut.write_bytes(cut.read_bytes()[:-500])
    (photos / "oslo" / "cat" / "0.png").write_bytes(bomb())
    (photos / "rome" / "dog" / "text.jpg").write_text("not a picture")
    (photos / "rome" / "dog" / "gone.jpg").symlink_to(photos / "nowhere.jpg")
    found = inspected(photos)
    reasons = found.faults()["reason"].tolist()
    assert len(reasons) == 4
    for reason, words in zip(
        reasons,
        ("0.png claims so many pixels", "cut.jpg cannot be decoded", "gone.jpg does not exist", "is no image"),
        strict=True,
    ):
        assert words in reason
        assert str(photos) in reason
    assert len(found.dataset) == 15
    assert found.sizes()["images"].sum() == 11
    assert found.samples()["problem"].astype(bool).sum() == 4


def test_a_table_may_name_pictures_that_are_missing_or_broken(photos, tmp_path):
    names = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.png"))
    (photos / names[0]).write_text("not a picture")
    frame = pd.DataFrame({"file": [*names, "rome/gone.png"], "y": ["cat", "dog"] * 6 + ["cat"]})
    frame.assign(site=["a", "b", "c"] * 4 + ["a"]).to_csv(tmp_path / "t.csv", index=False)
    found = inspected(tmp_path / "t.csv", image="file", target=["y"], domain=["site"], root=str(photos))
    assert found.faults()["row"].tolist() == [0, 12]
    assert "gone.png does not exist" in found.faults()["reason"].tolist()[1]


# Texts and WILDS


def test_texts_are_the_same_but_for_white_space(tmp_path):
    texts = ["The okapi", " The\n  okapi ", "the okapi", "another"]
    frame = pd.DataFrame({"text": texts, "y": [0, 1, 0, 1], "site": list("aabb")})
    frame.assign(split=["train", "train", "ood_test", "ood_test"]).to_csv(tmp_path / "t.csv", index=False)
    found = inspected(tmp_path / "t.csv", text="text", target=["y"], domain=["site"])
    assert found.duplicates[["row", "other"]].values.tolist() == [[1, 0]]


def test_wilds_is_known_by_its_folders(tmp_path):
    for name in ("i", "c"):
        (tmp_path / name).mkdir()
    for root in (write_iwildcam(tmp_path / "i"), tmp_path / "i" / "iwildcam_v2.0"):
        found = inspected(root)
        assert len(found.dataset) == 52
        assert found.splits()["without"].sum() == 4
    assert inspected(write_civilcomments(tmp_path / "c")).splits()["samples"].sum() == 70
    with pytest.raises(ValueError, match=r"iwildcam_v2\.0 brings its own splits"):
        inspected(tmp_path / "i", held_out=["1"])
    (tmp_path / "i" / "civilcomments_v1.0").mkdir()
    with pytest.raises(FolderError, match=r"several data sets, 'iwildcam_v2\.0', 'civilcomments_v1\.0'"):
        inspected(tmp_path / "i")


def test_satellite_images_are_read_and_a_broken_one_is_told(tmp_path):
    root, rng = write_poverty(tmp_path, ["mali"] * 4, unlabelled=1), np.random.default_rng(0)
    names = [f"poverty_v1.1/images/landsat_poverty_img_{number}.npz" for number in range(4)]
    image = gaussian_filter(rng.normal(size=(8, 224, 224)), (0, 8, 8)).astype(np.float32)
    image /= image.std()
    for name, content in zip(names[1:], (image, image, np.full_like(image, np.nan)), strict=True):
        (root / name).unlink()
        np.savez_compressed(root / name, x=content)
    (root / names[0]).unlink()
    (root / names[0]).write_text("broken")
    data = Dataset(
        inputs=SatelliteImages(root, names, PovertySettings(root=str(root))),
        target=torch.arange(4.0),
        domain=torch.zeros(4, dtype=torch.int64),
        split=["train", "train", "ood_test", "train"],
        task=Task("regression"),
        domain_names=("mali",),
        ids=names,
    )
    found = inspect_dataset(data)
    first, last = found.faults()["reason"]
    assert "landsat_poverty_img_0.npz cannot be read" in first
    assert "landsat_poverty_img_3.npz holds pixels that are not finite" in last
    assert found.duplicates[["row", "other", "exact"]].values.tolist() == [[2, 1, True]]
    assert found.sizes()["mode"].tolist() == ["8 channels"]


# What a file is


def test_tasks_are_guessed_from_targets(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2, 3, 4], "domain": list("aabb")})
    for target, task in (
        ([0, 1, 0, 1], "classification"),
        (["a", "b", "a", ""], "classification"),
        ([0.5, 1.0, 2.0, 3.0], "regression"),
    ):
        frame.assign(target=target).to_csv(tmp_path / "t.csv", index=False)
        settings = recognise(tmp_path / "t.csv", Roles())
        assert isinstance(settings, TableSettings)
        assert (settings.task, settings.features) == (task, ("x",))
    frame.assign(p=[0, 1, 1, 0], q=[1, 1, 0, 0]).to_parquet(tmp_path / "t.parquet")
    assert recognise(tmp_path / "t.parquet", Roles(target=["p", "q"])).task == "multilabel"
    assert recognise(tmp_path / "t.parquet", Roles(target=["p", "x"], columns=["q"])).task == "regression"
    np.savez(tmp_path / "a.npz", x=np.eye(4), y=np.arange(4.0), domain=np.arange(4))
    assert recognise(tmp_path / "a.npz", Roles()).task == "regression"


def test_without_splits_all_that_has_a_target_is_train(tmp_path):
    frame = pd.DataFrame({"x": np.arange(6.0), "domain": list("aabbcc"), "target": ["u", "v", "u", "v", "", "u"]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert inspected(tmp_path / "t.csv").splits()["samples"].to_dict() == {"train": 5, "unlabelled": 1}


@pytest.mark.parametrize(
    ("name", "roles", "words"),
    [
        ("t.txt", {}, "cannot read '.txt'; want '.csv'"),
        ("gone.csv", {}, "gone.csv does not exist"),
        ("t.csv", {"target": ["yy"]}, "has no column 'yy'"),
        ("words.csv", {"target": ["y"], "domain": ["site"]}, "no columns of features: say by --image, --text"),
        ("a.npz", {}, "has no array 'x'; say by --columns which it is: 'X', 'y'"),
        ("a.npz", {"columns": ["X", "y"]}, "one array is wanted"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, roles, words):
    pd.DataFrame({"x": [1.0], "y": [1], "site": ["a"]}).to_csv(tmp_path / "t.csv", index=False)
    pd.DataFrame({"note": ["long words"], "y": [1], "site": ["a"]}).to_csv(tmp_path / "words.csv", index=False)
    np.savez(tmp_path / "a.npz", X=np.eye(2), y=np.arange(2))
    (tmp_path / "t.txt").write_text("x")
    with pytest.raises(TableError, match=words):
        recognise(tmp_path / name, Roles(**roles))


def test_roles_of_files_are_refused_for_folders(photos):
    with pytest.raises(ValueError, match="--text says what a file holds"):
        recognise(photos, Roles(text="t"))
    assert isinstance(recognise(photos, Roles()), ImageFolderSettings)
