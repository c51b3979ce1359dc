import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler
from tests.data.small_tokenizer import save_tokenizer

from okapi.config import ArraysSettings, TableSettings
from okapi.data.dataset import Dataset
from okapi.data.features import inputs_from
from okapi.data.io import TableError
from okapi.data.registry import build_dataset
from okapi.data.splits import SeenDomainWarning


def frame(rows: int = 40, gaps: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.normal(50, 10, rows),
            "dose": rng.integers(1, 2000, rows),
            "smoker": rng.integers(0, 2, rows).astype(bool),
            "sex": rng.choice(["f", "m"], rows),
            "e_0": rng.normal(size=rows),
            "e_1": rng.normal(size=rows),
            "day": "2020-01-31",
            "ill": rng.integers(0, 2, rows),
            "hospital": np.repeat(["north", "south"], rows // 2),
        }
    )
    if gaps:
        table["sex"] = table["sex"].astype(object)
        table.loc[[3, 7, 30], "age"] = np.nan
        table.loc[[7, 9], "sex"] = None
    return table


def saved(folder: Path, table: pd.DataFrame, suffix: str = ".csv", **changes) -> TableSettings:
    path = folder / f"table{suffix}"
    {".csv": lambda: table.to_csv(path, index=False), ".parquet": lambda: table.to_parquet(path)}[suffix]()
    roles = {"target": "ill", "domain": "hospital", "held_out": "south", "features": ("age", "dose", "smoker", "sex")}
    return TableSettings(**{"path": str(path), **roles, **changes})


def from_description(path: str | Path, dataset: Dataset) -> torch.Tensor:
    """Return inputs as they are read by nothing but the description, as a run stores it."""
    return inputs_from(Path(path), json.loads(json.dumps(dataset.description(), allow_nan=False)))[0]


def test_numbers_are_standardised_by_train_and_categories_are_one_hot(tmp_path: Path):
    table = frame()
    data = build_dataset(saved(tmp_path, table))
    train = data.split == "train"
    numbers = table[["age", "dose"]]
    expected = StandardScaler().fit(numbers[train]).transform(numbers)
    np.testing.assert_allclose(data.inputs[:, :2], expected, atol=1e-5)
    one_hot = pd.get_dummies(table["sex"])[["f", "m"]]
    np.testing.assert_array_equal(data.inputs[:, 2:], np.column_stack([table["smoker"], one_hot]).astype(np.float32))
    description = data.description()
    assert description["features"] == ["age", "dose", "smoker", "sex=f", "sex=m"]
    assert (description["kind"], description["shape"]) == ("table", [5])
    raw = build_dataset(saved(tmp_path, table, scale="none")).inputs
    np.testing.assert_array_equal(raw[:, 0], table["age"].astype(np.float32))


@hypothesis_settings(max_examples=25, deadline=None)
@given(st.sampled_from([".csv", ".parquet"]), st.sampled_from(["standard", "none"]), st.booleans(), st.randoms())
def test_a_file_read_by_the_description_gives_the_inputs_of_the_data_set(tmp_path_factory, suffix, scale, gaps, random):
    folder, table = tmp_path_factory.mktemp("t"), frame(gaps=gaps)
    policy = random.choice(["drop", "impute"]) if gaps else "error"
    settings = saved(folder, table, suffix, scale=scale, missing=policy)
    data = build_dataset(settings)
    assert torch.equal(from_description(settings.path, data), data.inputs)
    some = sorted(random.sample(range(len(table)), 5))  # other rows, in another order of columns, without the labels
    other = saved(folder, table.iloc[some][["sex", "dose", "age", "smoker"]], suffix)
    inputs, kept = inputs_from(Path(other.path), data.description())
    ids = {int(name): row for row, name in enumerate(data.ids)} if policy != "drop" else None
    if ids is not None:
        assert torch.equal(inputs, data.inputs[[ids[row] for row in some]])
    else:
        complete = table[["age", "sex"]].notna().all(axis=1).to_numpy()
        places = np.cumsum(complete) - 1
        assert [some[row] for row in kept] == [row for row in some if complete[row]]
        assert torch.equal(inputs, data.inputs[[places[some[row]] for row in kept]])


def test_missing_values_are_an_error_or_dropped_or_imputed_and_counted(tmp_path: Path, capsys):
    table = frame(gaps=True)
    with pytest.raises(TableError, match=r"table\.csv: row 4, column 'age' is missing; missing: drop or impute"):
        build_dataset(saved(tmp_path, table))
    dropped = build_dataset(saved(tmp_path, table, missing="drop"))
    assert len(dropped) == 36
    assert "4 of 40 rows dropped; missing in 'age' (3), 'sex' (2)" in capsys.readouterr().err
    imputed = build_dataset(saved(tmp_path, table, missing="impute", scale="none"))
    assert "imputed (median, or most frequent) in 'age' (3), 'sex' (2)" in capsys.readouterr().err
    names = imputed.description()["features"]
    assert names == ["age", "dose", "smoker", "age is missing", "sex is missing", "sex=f", "sex=m"]
    train = imputed.split == "train"
    assert imputed.inputs[3, 0] == np.float32(np.nanmedian(table["age"][train]))
    frequent = table["sex"][train].mode()[0]
    assert imputed.inputs[7, names.index(f"sex={frequent}")] == 1
    assert imputed.inputs[:, 3].nonzero().flatten().tolist() == [3, 7, 30]
    assert imputed.inputs[:, 4].nonzero().flatten().tolist() == [7, 9]


def test_features_by_pattern_and_all(tmp_path: Path, capsys):
    ranged = build_dataset(saved(tmp_path, frame(), features="e_{0..1}"))
    assert ranged.description()["features"] == ["e_0", "e_1"]
    every = build_dataset(saved(tmp_path, frame(), features="all"))
    assert every.description()["features"] == ["age", "dose", "smoker", "e_0", "e_1", "sex=f", "sex=m"]
    assert "left out: 'day'" in capsys.readouterr().err
    with pytest.raises(TableError, match="'day' holds dates, not numbers: leave it out"):
        build_dataset(saved(tmp_path, frame(), features="d*"))


def test_what_a_new_file_has_wrong_is_named(tmp_path: Path):
    table = frame()
    data = build_dataset(saved(tmp_path, table))
    new = tmp_path / "new.csv"
    for words, changed in {
        r"new\.csv has no column 'age'; did you mean page\?": table.rename(columns={"age": "page"}),
        r"row 2, column 'age': 'old' is not a finite number": table.astype({"age": object}).replace(
            {"age": {table["age"][1]: "old"}}
        ),
        r"row 5, column 'sex' is missing; missing: drop or impute": table.assign(sex=[*"fmfm", "", *["f"] * 35]),
    }.items():
        changed.to_csv(new, index=False)
        with pytest.raises(TableError, match=words):
            from_description(new, data)
    table.assign(sex="x").to_csv(new, index=False)  # a category that training did not have
    assert not from_description(new, data)[:, 3:].any()


def test_columns_that_cannot_be_features_are_named(tmp_path: Path):
    table = frame(1000).assign(name=[f"n{number}" for number in range(1000)])
    with pytest.raises(TableError, match=r"column 'name' holds \d+ different texts, at most 256 can be categories"):
        build_dataset(saved(tmp_path, table, features="name"))
    table.loc[table["hospital"] == "north", "age"] = np.nan
    with pytest.raises(TableError, match="column 'age' has no value in the training split; leave it out"):
        build_dataset(saved(tmp_path, table, missing="impute"))


def test_embeddings_in_lists_keep_their_scale(tmp_path: Path):
    e = np.random.default_rng(1).normal(5, 3, (40, 3)).astype(np.float32)
    table = frame().assign(e=list(e))
    settings = saved(tmp_path, table, ".parquet", features="e")
    data = build_dataset(settings)
    np.testing.assert_array_equal(data.inputs, e)
    assert torch.equal(from_description(settings.path, data), data.inputs)
    table.assign(e=list(e[:, :2])).to_parquet(tmp_path / "narrow.parquet")
    with pytest.raises(TableError, match="column 'e' holds 2 numbers a row, 3 are wanted"):
        from_description(tmp_path / "narrow.parquet", data)


@pytest.mark.parametrize(
    "changes", [{}, {"scale": "unit"}, {"centre": "domain"}, {"scale": "unit", "centre": "domain"}]
)
def test_arrays_are_read_by_their_description(tmp_path: Path, changes):
    rng = np.random.default_rng(0)
    domain, split = np.repeat(["a", "b", "c"], 10), np.repeat(["train", "unlabelled", "ood_test"], 10)
    np.savez(tmp_path / "t.npz", x=rng.normal(3, 2, (30, 2, 4)), y=np.arange(30) % 2, domain=domain, split=split)
    data = build_dataset(ArraysSettings(path=str(tmp_path / "t.npz"), **changes))
    assert torch.equal(from_description(tmp_path / "t.npz", data), data.inputs)
    assert data.description()["shape"] == [2, 4]
    np.savez(tmp_path / "new.npz", x=np.load(tmp_path / "t.npz")["x"][15:25], domain=domain[15:25])
    assert torch.equal(from_description(tmp_path / "new.npz", data), data.inputs[15:25])
    with pytest.raises(TableError, match=r"table\.csv: arrays are read from npz, got '\.csv'"):
        from_description(saved(tmp_path, frame()).path, data)


def test_texts_are_read_by_their_description(tmp_path: Path):
    tokenizer = save_tokenizer(tmp_path / "words")
    settings = saved(tmp_path, frame(), features=(), text="sex", tokenizer=tokenizer, tokens=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeenDomainWarning)
        data = build_dataset(replace(settings, held_out="south"))
    texts = from_description(settings.path, data)
    assert torch.equal(texts[5]["input_ids"], data.sample(5)["input_ids"])
