from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import torch
from tests.data.small_tokenizer import save_tokenizer
from tests.data.wilds.tiny import write_civilcomments

from okapi.config import CivilCommentsSettings
from okapi.data.image_folder import FolderError
from okapi.data.io import TableError
from okapi.data.registry import BUILDERS
from okapi.data.task import Task
from okapi.data.wilds.civilcomments import IDENTITIES, civilcomments_dataset
from okapi.evaluation import evaluate

OURS = {"train": "train", "val": "ood_val", "test": "ood_test"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_civilcomments(tmp_path)


def settings(root: Path, **changes) -> CivilCommentsSettings:
    words = root / "words"
    tokenizer = str(words) if words.exists() else save_tokenizer(words)
    return CivilCommentsSettings(**{"root": str(root), "tokenizer": tokenizer, "tokens": 8, **changes})


def labelled(root: Path) -> pd.DataFrame:
    return pd.read_csv(root / "civilcomments_v1.0" / "all_data_with_identities.csv", index_col=0)


def test_the_folder_is_read(root):
    data = BUILDERS["civilcomments"](settings(root))
    data.check()
    table = labelled(root)
    assert len(data) == 70
    assert data.task == Task("classification", 2)
    assert data.class_names == ("not toxic", "toxic")
    assert data.split.tolist() == [OURS[name] for name in table["split"]] + ["unlabelled"] * 10
    assert data.target[:60].tolist() == (table["toxicity"] >= 0.5).astype(int).tolist()
    assert data.target[[3, 7]].tolist() == [1, 0]  # a half is enough
    assert data.domain_names == IDENTITIES
    assert data.domain[:60].tolist() == (table[list(IDENTITIES)] >= 0.5).to_numpy().tolist()
    assert data.inputs.text(4) == 'The okapi, "4",\nis shy'
    assert data.sample(4)["input_ids"].shape == (8,)
    assert CivilCommentsSettings(root="").tokens == 300


def test_unlabelled_comments_mention_nobody_and_their_labels_may_be_handed_over(root):
    data = civilcomments_dataset(settings(root))
    assert not data.domain[60:].any()
    assert data.target[60:].tolist() == [0] * 5 + [1] * 5
    full = civilcomments_dataset(settings(root, fully_labelled=True))
    assert Counter(full.split[60:].tolist()) == {"train": 10}
    assert len(civilcomments_dataset(settings(root, unlabelled=False))) == 60


def test_groups_are_identities_by_label(root):
    data = civilcomments_dataset(settings(root))
    table = labelled(root)
    assert len(data.group_names) == 16
    assert data.group_names[:2] == ("male, not toxic", "male, toxic")
    for number, name in enumerate(data.group_names):
        identity, label = name.split(", ")
        wanted = (table[identity] >= 0.5) & ((table["toxicity"] >= 0.5) == (label == "toxic"))
        assert data.groups[:60, number].tolist() == wanted.tolist()


def test_wrong_files_are_named(root):
    path = root / "civilcomments_v1.0" / "all_data_with_identities.csv"
    table = labelled(root).astype(object)

    def refused(words: str, column: str, row: int, value: object) -> None:
        changed = table.copy()
        changed.loc[row, column] = value
        changed.to_csv(path)
        with pytest.raises(TableError, match=rf"^{path}: row {row + 1}, column '{column}'{words}"):
            civilcomments_dataset(settings(root))

    refused(" is missing", "toxicity", 8, None)
    refused(": 'very' is not a finite number", "toxicity", 8, "very")
    refused(": 'yes' is not a finite number", "muslim", 9, "yes")
    refused(" must be one of 'train', 'val', 'test', got 'ood'", "split", 2, "ood")
    table.drop(columns="LGBTQ").to_csv(path)
    with pytest.raises(TableError, match="has no column 'LGBTQ'"):
        civilcomments_dataset(settings(root))
    path.unlink()
    with pytest.raises(FolderError, match=r"has no 'civilcomments_v1.0/all_data_with_identities.csv'. In it must be:"):
        civilcomments_dataset(settings(root))


def package(theirs: ModuleType, root: Path) -> Any:
    """Return the package's data set, which was written for strings as pandas had them before version 3."""
    with pd.option_context("future.infer_string", False):
        return theirs.CivilCommentsDataset(root_dir=str(root))


@pytest.mark.filterwarnings("ignore")
def test_the_package_reads_the_same(root):
    theirs = pytest.importorskip("wilds.datasets.civilcomments_dataset", exc_type=ImportError)
    more = pytest.importorskip("wilds.datasets.unlabeled.civilcomments_unlabeled_dataset", exc_type=ImportError)
    comments = package(theirs, root)
    unlabelled = more.CivilCommentsUnlabeledDataset(root_dir=str(root))
    data = civilcomments_dataset(settings(root))
    names = {number: name for name, number in comments.split_dict.items()}
    assert data.split[:60].tolist() == [OURS[names[number]] for number in comments.split_array.tolist()]
    assert torch.equal(data.target, torch.cat([comments.y_array, unlabelled._y_array]))
    assert torch.equal(data.domain[:60].long(), comments.metadata_array[:, :8])
    assert [data.inputs.text(row) for row in range(70)] == [*comments._text_array, *unlabelled._text_array]


@pytest.mark.filterwarnings("ignore")
def test_the_package_measures_the_same(root):
    theirs = pytest.importorskip("wilds.datasets.civilcomments_dataset", exc_type=ImportError)
    pytest.importorskip("torch_scatter", exc_type=ImportError)
    comments, data = package(theirs, root), civilcomments_dataset(settings(root))
    prediction = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    results, _ = comments.eval(prediction.argmax(1), comments.y_array, comments.metadata_array)
    ours = evaluate(data.task, prediction, data.target[:60], data.groups[:60], data.group_names, "accuracy")
    assert ours["accuracy_domain_worst"] == pytest.approx(float(results["acc_wg"]), abs=1e-6)
