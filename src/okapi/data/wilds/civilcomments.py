"""CivilComments of WILDS 2.0: whether a comment is toxic; domains are the identities that it mentions."""

import numpy as np
import pyarrow as pa
import torch

from okapi.config import CivilCommentsSettings
from okapi.data.dataset import Dataset
from okapi.data.io import present, to_numbers
from okapi.data.task import Task
from okapi.data.text import Texts
from okapi.data.wilds import find_folders, place_in, read_columns, renamed_splits

# Folders, columns, thresholds and groups: p-lambda/wilds, wilds/datasets/civilcomments_dataset.py and
# wilds/datasets/unlabeled/civilcomments_unlabeled_dataset.py.
LABELLED, UNLABELLED = "civilcomments_v1.0", "civilcomments_unlabeled_v1.0"
IDENTITIES = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")
LAYOUT = f"""\
  {LABELLED}/all_data_with_identities.csv                  columns comment_text, toxicity, split,
{"":64}{", ".join(IDENTITIES)}
  {UNLABELLED}/unlabeled_data_with_identities.csv  columns comment_text, toxicity (not needed if unlabelled is false)"""
SPLITS = {"train": "train", "val": "ood_val", "test": "ood_test"}
CLASSES = ("not toxic", "toxic")
GROUPS = tuple(f"{identity}, {label}" for identity in IDENTITIES for label in CLASSES)
_TEXTS = {LABELLED: "all_data_with_identities.csv", UNLABELLED: "unlabeled_data_with_identities.csv"}


def civilcomments_dataset(settings: CivilCommentsSettings) -> Dataset:
    """Return CivilComments with the splits of WILDS: val is ood_val, test is ood_test, extra_unlabeled is unlabelled.

    A comment is toxic, or mentions an identity, if half of those who read it said so, or more. Domains are the eight
    identities, as sets; groups are comments that mention an identity and are toxic, or are not.
    """
    used = [LABELLED, UNLABELLED] if settings.unlabelled else [LABELLED]
    folders = find_folders(settings.root, {name: [_TEXTS[name]] for name in used}, LAYOUT)
    path = folders[LABELLED] / _TEXTS[LABELLED]
    frame, place = read_columns(path, ["comment_text", "toxicity", "split", *IDENTITIES]), place_in(path)
    target = (to_numbers(present(frame["toxicity"], place), place) >= 0.5).astype(np.int64)
    identities = np.stack([to_numbers(frame[name], place) >= 0.5 for name in IDENTITIES], axis=1)
    split = renamed_splits(frame["split"], SPLITS, place)
    texts = [frame["comment_text"]]
    ids = [f"labelled {row}" for row in range(len(frame))]
    if settings.unlabelled:
        path = folders[UNLABELLED] / _TEXTS[UNLABELLED]
        frame = read_columns(path, ["comment_text", "toxicity"])
        toxicity = to_numbers(frame["toxicity"], place_in(path))
        known = ~np.isnan(toxicity)
        target = np.concatenate([target, np.where(known, toxicity >= 0.5, -1)])
        identities = np.concatenate([identities, np.zeros((len(frame), len(IDENTITIES)), dtype=bool)])
        split = np.concatenate([split, np.where(known & settings.fully_labelled, "train", "unlabelled")])
        texts.append(frame["comment_text"])
        ids += [f"unlabelled {row}" for row in range(len(frame))]
    groups = identities[:, :, None] & (target[:, None, None] == np.arange(len(CLASSES)))
    return Dataset(
        inputs=Texts(pa.concat_arrays([pa.array(part, pa.large_string()) for part in texts]), settings),
        target=torch.from_numpy(target),
        domain=torch.from_numpy(identities),
        split=split,
        task=Task("classification", 2),
        domain_names=IDENTITIES,
        ids=ids,
        class_names=CLASSES,
        groups=torch.from_numpy(groups.reshape(len(target), -1)),
        group_names=GROUPS,
    )
