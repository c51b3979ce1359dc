"""Tiny folders of the layout in which WILDS 2.0 is distributed; its own package reads them too."""

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from okapi.data.wilds.civilcomments import IDENTITIES
from okapi.data.wilds.poverty import DOMAINS

AUXILIARY = (
    "identity_any",
    "severe_toxicity",
    "obscene",
    "threat",
    "insult",
    "identity_attack",
    "sexual_explicit",
)


def write_iwildcam(root: Path) -> Path:
    """Write 40 labelled pictures of eight traps and 12 unlabelled ones of three; return the root."""
    rows = np.arange(40)
    location = rows % 8  # traps 0 to 4 are for training, 5 and 6 for validation, 7 for the test
    split = np.where(location < 5, np.array(["train", "train", "train", "id_val", "id_test"])[rows // 8], "val")
    labelled = pd.DataFrame(
        {
            "split": np.where(location == 7, "test", split),
            "location_remapped": location,
            "filename": [f"{row:02d}.jpg" for row in rows],
            "y": rows // 2 % 4,
            "sequence_remapped": rows,
            "datetime": "2013-07-01 10:11:12.000",
        }
    )
    more = pd.DataFrame(
        {
            "uid": [f"u{row:02d}" for row in range(12)],
            "location_remapped": np.arange(12) % 3,
            "y": [0, 1, 2, 3, -1, 99999] * 2,
            "sequence_remapped": np.arange(12),
            "datetime": ["2014-07-01 10:11:12.000"] * 11 + [None],
        }
    )
    _write(labelled, root / "iwildcam_v2.0" / "metadata.csv", "2.0")
    _write(more, root / "iwildcam_unlabeled_v1.0" / "metadata.csv", "1.0")
    _pictures(root / "iwildcam_v2.0" / "train", labelled["filename"])
    _pictures(root / "iwildcam_unlabeled_v1.0" / "images", more["uid"] + ".jpg")
    return root


def write_poverty(root: Path, country: list[str], unlabelled: int = 230, side: int = 224) -> Path:
    """Write labelled images of these countries, one after another, and others; all are links to two files."""
    rng, labelled = np.random.default_rng(0), len(country)
    dhs = pd.DataFrame(
        {"country": country, "urban": rng.random(labelled) < 0.4, "wealthpooled": rng.normal(size=labelled)}
    )
    more = pd.DataFrame({"country": np.array(DOMAINS)[np.arange(unlabelled) % 23]})
    _write(dhs, root / "poverty_v1.1" / "dhs_metadata.csv", "1.1")
    _write(more, root / "poverty_unlabeled_v1.0" / "unlabeled_metadata.csv", "1.0")
    for number, (folder, count) in enumerate({"poverty_v1.1": labelled, "poverty_unlabeled_v1.0": unlabelled}.items()):
        images = root / folder / "images"
        images.mkdir()
        image = np.arange(8, dtype=np.float32)[:, None, None] + np.full((side, side), 10 * number + 1, dtype=np.float32)
        np.savez_compressed(root / f"{folder}.npz", x=image)
        for row in range(count):
            (images / f"landsat_poverty_img_{row}.npz").symlink_to(root / f"{folder}.npz")
    return root


def write_civilcomments(root: Path) -> Path:
    """Write 60 labelled comments and 10 unlabelled ones; return the root."""
    rng = np.random.default_rng(0)
    labelled = pd.DataFrame(
        {
            "comment_text": [f'The okapi, "{row}",\nis shy' for row in range(60)],
            "toxicity": np.round(rng.random(60), 2),
            "split": rng.permutation(["train"] * 30 + ["val"] * 15 + ["test"] * 15),
        }
        | {name: np.round(rng.random(60), 2) for name in (*IDENTITIES, *AUXILIARY)}
    )
    labelled.loc[[3, 7], "toxicity"] = 0.5, 0.4999
    labelled.loc[[3, 7], "male"] = 0.5, 0.4999
    labelled.loc[5, "white"] = np.nan
    more = pd.DataFrame(
        {
            "comment_text": [f"not {row}" for row in range(10)],
            "toxicity": np.linspace(0, 1, 10),
            "split": "extra_unlabeled",
        }
        | dict.fromkeys((*IDENTITIES, *AUXILIARY), np.nan)
    )
    _write(labelled, root / "civilcomments_v1.0" / "all_data_with_identities.csv", "1.0", index=True)
    path = root / "civilcomments_unlabeled_v1.0" / "unlabeled_data_with_identities.csv"
    _write(more.set_index(np.arange(60, 70)), path, "1.0", index=True)
    return root


def _write(frame: pd.DataFrame, path: Path, version: str, index: bool = False) -> None:
    path.parent.mkdir(parents=True)
    frame.to_csv(path, index=index)
    (path.parent / f"RELEASE_v{version}.txt").write_text("")  # by which the package knows that all is there


def _pictures(folder: Path, names: pd.Series) -> None:
    folder.mkdir()
    for number, name in enumerate(names):
        Image.new("RGB", (12, 9), (number, 2 * number, 0)).save(folder / name, quality=100, subsampling=0)
