"""PovertyMap of WILDS 2.0: the wealth of villages from satellite images; a domain is a country."""

import copy
import zipfile
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from okapi.config import Fold, Pool, PovertySettings, Verify
from okapi.data.dataset import Dataset
from okapi.data.images import without_unreadable
from okapi.data.io import Place, TableError, present, reject_cells, to_numbers, to_truth
from okapi.data.sample_files import ArrayCache, ImageError, find_faults, key_of, missing_files, reject
from okapi.data.task import Task
from okapi.data.wilds import find_folders, place_in, read_columns
from okapi.data.wilds.poverty_views import poverty_views
from okapi.messages import listed

# Folders, columns, countries, folds and how id_val and id_test are drawn: p-lambda/wilds,
# wilds/datasets/poverty_dataset.py, wilds/datasets/unlabeled/poverty_unlabeled_dataset.py and, for the seed,
# subsample_idxs of wilds/common/utils.py. The images are normalised already.
LABELLED, UNLABELLED = "poverty_v1.1", "poverty_unlabeled_v1.0"
LAYOUT = f"""\
  {LABELLED}/dhs_metadata.csv                          columns country, urban, wealthpooled
  {LABELLED}/images/landsat_poverty_img_0.npz          one for each row, from 0; key x, 8 x 224 x 224
  {UNLABELLED}/unlabeled_metadata.csv          column country (needed if unlabelled is one of *_unlabeled)
  {UNLABELLED}/images/landsat_poverty_img_0.npz"""
SHAPE = (8, 224, 224)  # blue, green, red, short-wave infrared 1 and 2, temperature, near infrared, lights at night
GROUPS = ("rural", "urban")
# Each fold tests on one of five sets of countries and validates on another; the rest it trains on.
COUNTRIES = {
    1: ("angola", "cote_d_ivoire", "ethiopia", "mali", "rwanda"),
    2: ("benin", "burkina_faso", "guinea", "sierra_leone", "tanzania"),
    3: ("cameroon", "ghana", "malawi", "zimbabwe"),
    4: ("democratic_republic_of_congo", "mozambique", "nigeria", "togo", "uganda"),
    5: ("kenya", "lesotho", "senegal", "zambia"),
}
FOLDS = {"A": (1, 2), "B": (2, 3), "C": (3, 4), "D": (4, 5), "E": (5, 1)}  # which are ood_test and ood_val
DOMAINS = tuple(sorted(name for names in COUNTRIES.values() for name in names))
_IN_DISTRIBUTION = 1000  # samples of id_val, and of id_test
_SEED = 541433  # to which the letter of the fold is added


def poverty_dataset(settings: PovertySettings) -> Dataset:
    """Return PovertyMap with the splits of WILDS: val is ood_val, test is ood_test; groups are rural and urban."""
    extra = settings.unlabelled.endswith("_unlabeled")
    wanted = {LABELLED: ["dhs_metadata.csv", "images"]}
    if extra:
        wanted[UNLABELLED] = ["unlabeled_metadata.csv", "images"]
    folders = find_folders(settings.root, wanted, LAYOUT)
    path = folders[LABELLED] / "dhs_metadata.csv"
    frame, place = read_columns(path, ["country", "urban", "wealthpooled"]), place_in(path)
    domain = _countries(frame["country"], place)
    wealth = to_numbers(present(frame["wealthpooled"], place), place).astype(np.float32)
    urban = to_truth(present(frame["urban"], place), place) > 0
    split = fold_splits(np.array(DOMAINS)[domain], settings.fold)
    if not (split == "train").any():
        raise TableError(
            f"{path} has too few rows of countries that fold {settings.fold} trains on: more than "
            f"{2 * _IN_DISTRIBUTION} are wanted, for so many are id_val and id_test"
        )
    names = _images(LABELLED, np.arange(len(frame)))
    if extra:
        path = folders[UNLABELLED] / "unlabeled_metadata.csv"
        country = _countries(read_columns(path, ["country"])["country"], place_in(path))
        rows = np.flatnonzero(np.isin(country, _numbers(settings.fold, settings.unlabelled)))
        more, more_domain = _images(UNLABELLED, rows), country[rows]
    else:
        again = np.flatnonzero(split == "ood_val") if settings.unlabelled == "ood_val" else np.zeros(0, dtype=np.int64)
        more, more_domain = [names[row] for row in again], domain[again]
    groups = np.zeros((len(domain) + len(more), len(GROUPS)), dtype=bool)
    groups[np.arange(len(domain)), urban.astype(int)] = True
    dataset = Dataset(
        inputs=SatelliteImages(folders[LABELLED].parent, [*names, *more], settings),
        target=torch.from_numpy(np.concatenate([wealth, np.full(len(more), np.nan, dtype=np.float32)])),
        domain=torch.from_numpy(np.concatenate([domain, more_domain])),
        split=np.concatenate([split, np.full(len(more), "unlabelled")]),
        task=Task("regression"),
        domain_names=DOMAINS,
        ids=[*names, *(f"{name}, unlabelled" for name in more)],
        views=poverty_views(settings),
        groups=torch.from_numpy(groups),
        group_names=GROUPS,
    )
    return without_unreadable(dataset)


def fold_splits(country: NDArray[np.str_], fold: Fold) -> NDArray[np.str_]:
    """Return the split of each labelled image (n,) as WILDS draws them: the same samples, by the same generator.

    Parameters
    ----------
    country : array (n,) of str
        In the order of ``dhs_metadata.csv``.
    fold : {"A", "B", "C", "D", "E"}
    """
    split = np.full(len(country), "train", dtype="<U10")
    for part, number in zip(("ood_test", "ood_val"), FOLDS[fold], strict=True):
        split[np.isin(country, COUNTRIES[number])] = part
    source = np.flatnonzero(split == "train")
    np.random.default_rng(_SEED + ord(fold)).shuffle(source)
    split[source[:_IN_DISTRIBUTION]] = "id_val"
    split[source[_IN_DISTRIBUTION : 2 * _IN_DISTRIBUTION]] = "id_test"
    return split


class SatelliteImages:
    """Images of eight channels, each unpacked when it is asked for: item ``row`` is a tensor (8, 224, 224).

    Parameters
    ----------
    root : path
    names : sequence of str
        Paths of npz files from the root; the same may come again.
    settings : PovertySettings
    """

    def __init__(self, root: Path, names: Sequence[str], settings: PovertySettings) -> None:
        self.root, self.settings = root, settings
        self._files, self._file = np.unique(np.array(names, dtype=np.bytes_), return_inverse=True)
        faults = self._look()
        if settings.unreadable == "error":
            reject(faults, len(self._files))
        self.unreadable = {row: faults[file] for row, file in enumerate(self._file.tolist()) if file in faults}

    def __len__(self) -> int:
        return len(self._file)

    def __getitem__(self, row: int) -> Tensor:
        file = int(self._file[row])
        image = torch.from_numpy(self._read(file) if self.settings.cache is None else self._cache[file])
        if not self.settings.nightlights:
            image[-1] = 0
        return image

    def only(self, rows: NDArray[np.int64]) -> "SatelliteImages":
        """Return some of the images, (m,)."""
        chosen = copy.copy(self)
        chosen._file, chosen.unreadable = self._file[rows], {}
        return chosen

    def description(self) -> dict[str, Any]:
        """Return what inputs are: images that are normalised already, not pixels."""
        return {"kind": "satellite images", "shape": list(SHAPE), "nightlights": self.settings.nightlights}

    def check(self) -> None:
        """Read every image through, and name those that are broken, all at once."""
        reject(self._faults("pixels"), len(self._files))

    def _look(self) -> dict[int, str]:
        """Look at the files as the settings say, build the cache if there is to be one, and return what is wrong."""
        settings = self.settings
        if settings.verify == "nothing":
            return {}
        missing = missing_files(self.root, self._names())
        if missing and settings.unreadable == "error":
            return missing
        if settings.cache is None:
            return self._faults("pixels" if settings.unreadable == "skip" else settings.verify) | missing
        if not self._cache.usable():
            doing = f"Caching satellite images in {settings.cache}"
            self._cache.build(self._read, "float32", doing, settings.unreadable)
        return self._cache.faults()

    def _faults(self, verify: Verify) -> dict[int, str]:
        if verify == "exists":
            return {}
        read = partial(self._read, header_only=verify == "headers")
        return find_faults(read, len(self._files), f"Checking {verify} of satellite images")

    def _read(self, file: int, header_only: bool = False) -> NDArray[np.float32]:
        path = self.root / self._files[file].decode()
        try:
            with zipfile.ZipFile(path) as archive, archive.open("x.npy") as member:
                old = np.lib.format.read_magic(member) == (1, 0)
                read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(member)
            # Before anything is unpacked: a small file may claim gigabytes.
            if shape != SHAPE or dtype.kind != "f":
                raise ImageError(f"{path} holds {dtype} of shape {shape}; floats of shape {SHAPE} are wanted")
            if header_only:
                return np.zeros(0, dtype=np.float32)
            with np.load(path, allow_pickle=False) as arrays:
                return np.ascontiguousarray(arrays["x"], dtype=np.float32)
        except ImageError:
            raise
        except Exception as error:  # zipfile, zlib and numpy raise almost anything at a broken file
            raise ImageError(f"{path} cannot be read: {error or type(error).__name__}") from error

    def _names(self) -> list[str]:
        return [name.decode() for name in self._files]

    @cached_property
    def _cache(self) -> ArrayCache:
        key, shape = key_of(self.root, self._names()), (len(self._files), *SHAPE)
        return ArrayCache(self.settings.cache or "", f"satellite-{key}", shape, ("float32",))


def _countries(values: pd.Series, place: Place) -> NDArray[np.int64]:
    number: dict[Any, int] = {name: row for row, name in enumerate(DOMAINS)}
    numbers = present(values, place).map(number)
    wrong = f" must be one of {listed(DOMAINS, len(DOMAINS))}, got {{}}"
    reject_cells(numbers.isna().to_numpy(dtype=bool), values, place, wrong)
    return numbers.to_numpy(dtype=np.int64)


def _numbers(fold: Fold, pool: Pool) -> list[int]:
    """Return the countries of a pool of unlabelled images."""
    test, validation = (set(COUNTRIES[number]) for number in FOLDS[fold])
    chosen = {"train_unlabeled": set(DOMAINS) - test - validation, "val_unlabeled": validation, "test_unlabeled": test}
    return [DOMAINS.index(name) for name in sorted(chosen[pool])]


def _images(folder: str, numbers: NDArray[np.int64]) -> list[str]:
    return [f"{folder}/images/landsat_poverty_img_{number}.npz" for number in numbers.tolist()]
