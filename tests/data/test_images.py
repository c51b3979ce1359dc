import pickle
import shutil
import struct
import threading
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from okapi.config import ImageSettings
from okapi.data.dataset import Dataset
from okapi.data.images import ImageFiles, without_unreadable
from okapi.data.sample_files import ArrayCache, ImageError
from okapi.data.task import Task

PLAIN = ImageSettings(size=4)
GREY = ImageSettings(size=4, colour="grey")


def saved(folder: Path, image: Image.Image, name: str = "picture.png", **options) -> ImageFiles:
    image.save(folder / name, **options)
    return ImageFiles(folder, [name], PLAIN)


# What an image becomes


def palette() -> Image.Image:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 200, 100, 50])
    return image


def sixteen_bit() -> Image.Image:
    return Image.fromarray(np.full((4, 4), 12345, dtype=np.uint16))


COLOURS = {
    "rgb": (Image.new("RGB", (4, 4), (200, 100, 50)), (200 / 255, 100 / 255, 50 / 255)),
    "grey": (Image.new("L", (4, 4), 51), (0.2, 0.2, 0.2)),
    "black and white": (Image.new("1", (4, 4), 1), (1.0, 1.0, 1.0)),
    "palette": (palette(), (200 / 255, 100 / 255, 50 / 255)),
    # Two fifths of the colour, three fifths of the white behind it.
    "transparent": (Image.new("RGBA", (4, 4), (0, 255, 100, 102)), (0.6, 1.0, 0.4 * 100 / 255 + 0.6)),
    "transparent grey": (Image.new("LA", (4, 4), (0, 102)), (0.6, 0.6, 0.6)),
    "16-bit": (sixteen_bit(), (12345 / 65535,) * 3),
}


@pytest.mark.parametrize("kind", COLOURS)
def test_pixels_of_every_kind_are_shares_of_full_light(tmp_path, kind):
    image, colour = COLOURS[kind]
    wanted = torch.tensor(colour)[:, None, None].expand(3, 4, 4)
    torch.testing.assert_close(
        saved(tmp_path, image)[0], wanted, rtol=0, atol=0.5 / 255 if "transparent" in kind else 1e-6
    )


def test_a_palette_with_a_transparent_colour_is_white_there(tmp_path):
    files = saved(tmp_path, palette(), transparency=1)
    assert torch.equal(files[0], torch.ones(3, 4, 4))


def test_grey_has_one_channel(tmp_path):
    Image.new("RGB", (8, 8), (51, 51, 51)).save(tmp_path / "a.png")
    sixteen_bit().save(tmp_path / "b.png")
    files = ImageFiles(tmp_path, ["a.png", "b.png"], GREY)
    torch.testing.assert_close(files[0], torch.full((1, 4, 4), 0.2))
    torch.testing.assert_close(files[1], torch.full((1, 4, 4), 12345 / 65535))


def corners() -> np.ndarray:
    """Return a picture that no turn and no reflection leaves as it is."""
    return np.kron(np.array([[10, 200], [90, 40]], dtype=np.uint8), np.ones((4, 2), dtype=np.uint8))


# By what numpy turns each orientation of the EXIF standard upright.
UPRIGHT = {
    1: lambda seen: seen,
    2: np.fliplr,
    3: lambda seen: np.rot90(seen, 2),
    4: np.flipud,
    5: np.transpose,
    6: lambda seen: np.rot90(seen, -1),
    7: lambda seen: np.rot90(seen, 2).T,
    8: np.rot90,
}


@pytest.mark.parametrize("orientation", UPRIGHT)
def test_pictures_are_turned_as_exif_says(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(corners()).save(tmp_path / "a.png", exif=exif)
    upright = UPRIGHT[orientation](corners())
    Image.fromarray(np.ascontiguousarray(upright)).save(tmp_path / "b.png")
    files = ImageFiles(tmp_path, ["a.png", "b.png"], GREY)
    assert torch.equal(files[0], files[1])
    rows, columns = upright.shape
    assert files[1][0, 0, 0] == pytest.approx(upright[0, 0] / 255, abs=0.03)
    assert files[1][0, -1, 0] == pytest.approx(upright[rows - 1, 0] / 255, abs=0.03)
    assert files[1][0, 0, -1] == pytest.approx(upright[0, columns - 1] / 255, abs=0.03)


def test_squash_keeps_all_of_a_picture_and_crop_its_middle(tmp_path):
    pixels = np.zeros((8, 24), dtype=np.uint8)
    pixels[:, 8:16] = np.arange(8) * 30
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    Image.fromarray(pixels.T.copy()).save(tmp_path / "tall.png")
    crop = ImageFiles(tmp_path, ["wide.png", "tall.png"], replace(GREY, size=8, fit="crop"))
    middle = torch.from_numpy(pixels[:, 8:16] / np.float32(255))
    torch.testing.assert_close(crop[0][0], middle)  # nothing is scaled: the shorter side is as wanted
    torch.testing.assert_close(crop[1][0], middle.T)
    squash = ImageFiles(tmp_path, ["wide.png"], replace(GREY, size=8))[0][0]
    assert squash[0, 0] < 0.02
    assert squash[0, -1] < 0.05
    assert float(squash.mean()) == pytest.approx(pixels.mean() / 255, abs=0.01)  # scaling keeps the mean


def test_settings_are_checked():
    for words, wrong in {
        "size must be a whole number from 1 to 16,384, got 0": {"size": 0},
        "fit must be one of squash, crop, got 'pad'": {"fit": "pad"},
        "unreadable must be one of error, skip, got 'drop'": {"unreadable": "drop"},
    }.items():
        with pytest.raises(ValueError, match=words):
            ImageSettings(**wrong)


# Broken files


def bomb() -> bytes:
    """Return a PNG of a few kilobytes that claims 40,000 x 40,000 pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 40_000, 40_000, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(10**6))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.fixture
def gallery(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for number in range(5):
        Image.fromarray(rng.integers(0, 256, (16, 12, 3), dtype=np.uint8)).save(tmp_path / f"{number}.jpg")
    return tmp_path


NAMES = [f"{number}.jpg" for number in range(5)]


def test_all_that_is_broken_is_named_at_once_with_its_path(gallery):
    (gallery / "0.jpg").write_text("not an image")
    (gallery / "2.jpg").write_bytes(bomb())
    Image.fromarray(np.ones((4, 4), dtype=np.float32)).save(gallery / "3.jpg", format="TIFF")
    with pytest.raises(ImageError) as caught:
        ImageFiles(gallery, NAMES, PLAIN)
    message = str(caught.value)
    assert message.startswith("3 of 5 images cannot be used:")
    assert f"{gallery / '0.jpg'} is no image that Pillow can read" in message
    assert f"{gallery / '2.jpg'} claims" in message
    assert "MAX_IMAGE_PIXELS" in message
    assert f"{gallery / '3.jpg'} holds floating-point pixels" in message


def test_a_bomb_is_not_unpacked(gallery):
    (gallery / "2.jpg").write_bytes(bomb())
    files = ImageFiles(gallery, NAMES, replace(PLAIN, verify="exists"))
    with pytest.raises(ImageError, match="more than 89,478,485"):
        files[2]
    # Between once and twice the limit Pillow only warns.
    limit = int(40_000**2 / 1.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(ImageError, match=f"more than {limit:,}"):
            files[2]


def test_a_picture_that_is_cut_short_is_found_by_the_check_of_pixels(gallery):
    (gallery / "1.jpg").write_bytes((gallery / "1.jpg").read_bytes()[:-100])
    files = ImageFiles(gallery, NAMES, PLAIN)  # its header is fine
    words = r"1 of 5 images cannot be used:\n  .*1\.jpg cannot be decoded: .*truncated"
    with pytest.raises(ImageError, match=words):
        files.check()
    with pytest.raises(ImageError, match=words):
        ImageFiles(gallery, NAMES, replace(PLAIN, verify="pixels"))
    with pytest.raises(ImageError, match=r"1\.jpg cannot be decoded"):
        files[1]


def test_missing_files_and_paths_that_lead_out_are_refused(gallery):
    with pytest.raises(ImageError, match=r"2 of 3 images cannot be used:\n  .*9\.jpg does not exist\n  .*x/1\.jpg"):
        ImageFiles(gallery, ["0.jpg", "9.jpg", "x/1.jpg"], PLAIN)
    with pytest.raises(ImageError, match=r"path '\.\./0\.jpg' leads out of the folder \(1 such paths\)"):
        ImageFiles(gallery, ["0.jpg", "../0.jpg"], PLAIN)
    many = [f"{number}.png" for number in range(100)]
    with pytest.raises(ImageError, match=r"11\.png does not exist\n  \.\.\. and 88 more"):
        ImageFiles(gallery, many, PLAIN)


def test_unreadable_images_may_be_left_out_and_are_counted_by_split(gallery, capsys):
    (gallery / "1.jpg").write_bytes((gallery / "1.jpg").read_bytes()[:-100])  # its header is fine
    (gallery / "3.jpg").unlink()
    whole = ImageFiles(gallery, ["0.jpg", "2.jpg", "4.jpg"], PLAIN)
    for settings in (PLAIN, replace(PLAIN, cache=str(gallery / "cache"))):
        for _ in range(2):  # the second time from the cache
            data = without_unreadable(labelled(ImageFiles(gallery, NAMES, replace(settings, unreadable="skip"))))
            data.check()
            assert data.ids == ["0.jpg", "2.jpg", "4.jpg"]
            assert data.target.tolist() == [0, 2, 4]
            assert data.split.tolist() == ["train", "train", "ood_test"]
            assert all(torch.equal(data.sample(row), whole[row]) for row in range(3))
            assert "2 of 5 images cannot be read and are left out: 1 of train, 1 of ood_test. The first: " in (
                " ".join(capsys.readouterr().err.split())
            )
        with pytest.raises(ImageError, match=r"\n  .*\.jpg .*\nTo train without them: unreadable: skip"):
            ImageFiles(gallery, NAMES, settings)


def labelled(files: ImageFiles) -> Dataset:
    return Dataset(
        inputs=files,
        target=torch.arange(5),
        domain=torch.zeros(5, dtype=torch.int64),
        split=["train", "train", "train", "ood_test", "ood_test"],
        task=Task("classification", 5),
        domain_names=("a",),
        ids=NAMES,
    )


# The cache


@pytest.fixture
def cached(gallery: Path) -> ImageSettings:
    return replace(PLAIN, cache=str(gallery / "cache"))


def test_cached_pictures_are_the_same_numbers(gallery, cached):
    sixteen_bit().save(gallery / "deep.png")
    for names in (NAMES, [*NAMES, "deep.png"]):
        plain, quick = ImageFiles(gallery, names, PLAIN), ImageFiles(gallery, names, cached)
        for row in range(len(names)):
            assert torch.equal(plain[row], quick[row])
    types = sorted(np.load(path, mmap_mode="r").dtype.name for path in (gallery / "cache").glob("*.npy"))
    assert types == ["uint16", "uint8"]


def test_a_cache_is_read_not_the_files_and_follows_every_change(gallery, cached, capsys):
    first = ImageFiles(gallery, NAMES, cached)
    (path,) = (gallery / "cache").glob("*.npy")
    assert "Caching images of 4 pixels" in capsys.readouterr().err
    mapped = np.load(path)
    mapped[3] = 7
    np.save(path, mapped)
    again = ImageFiles(gallery, NAMES, cached)
    torch.testing.assert_close(again[3], torch.full((3, 4, 4), 7 / 255))  # what the cache says
    assert capsys.readouterr().err == ""
    Image.new("RGB", (5, 5), (255, 255, 255)).save(gallery / "3.jpg")
    assert torch.equal(ImageFiles(gallery, NAMES, cached)[3], torch.ones(3, 4, 4))  # another file, another cache
    assert ImageFiles(gallery, NAMES, replace(cached, size=5))[0].shape == (3, 5, 5)
    assert torch.equal(ImageFiles(gallery, NAMES[::-1], cached)[4], first[0])


def test_a_broken_cache_is_built_anew(gallery, cached):
    wanted = ImageFiles(gallery, NAMES, cached)[4]
    (path,) = (gallery / "cache").glob("*.npy")
    whole = path.read_bytes()
    for content in (whole[:-10], b"", b"nonsense" * 100):
        path.write_bytes(content)
        assert torch.equal(ImageFiles(gallery, NAMES, cached)[4], wanted)
        assert path.read_bytes() == whole


def test_broken_pictures_leave_no_cache(gallery, cached):
    (gallery / "1.jpg").write_text("not an image")
    (gallery / "4.jpg").write_bytes((gallery / "4.jpg").read_bytes()[:300])
    with pytest.raises(ImageError, match=r"2 of 5 images cannot be used:\n  .*1\.jpg is no image.*\n  .*4\.jpg"):
        ImageFiles(gallery, NAMES, cached)
    assert [path.name for path in (gallery / "cache").iterdir()] == [".lock"]


def test_a_cache_travels_to_workers_by_its_path(gallery, cached):
    files = ImageFiles(gallery, NAMES, cached)
    wanted = files[2]
    packed = pickle.dumps(files)
    assert len(packed) < 3000
    assert torch.equal(pickle.loads(packed)[2], wanted)


def test_of_several_that_want_a_cache_one_builds_it(tmp_path):
    calls: list[int] = []

    def read(row: int) -> np.ndarray:
        calls.append(row)
        return np.full(3, row, dtype=np.int64)

    caches = [ArrayCache(tmp_path, "key", (50, 3), ("int64",)) for _ in range(4)]
    threads = [threading.Thread(target=cache.build, args=(read, "int64")) for cache in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(calls) == list(range(50))
    assert [int(cache[49][0]) for cache in caches] == [49] * 4


def test_a_cache_that_does_not_fit_the_disk_is_refused(tmp_path):
    rows = shutil.disk_usage(tmp_path).total // 10**6 + 1
    with pytest.raises(OSError, match=r"GB free, a cache of .* needs"):
        ArrayCache(tmp_path, "key", (rows, 1000, 1000), ("uint8",)).build(lambda row: np.zeros((1000, 1000)), "uint8")
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
