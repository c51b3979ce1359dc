"""``okapi data`` as a user meets it."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image
from tests.data.test_duplicates import scene
from tests.data.wilds.tiny import write_civilcomments, write_iwildcam

from okapi.cli import main

OKAPI = str(Path(sys.executable).with_name("okapi"))


def run(*words: object) -> int:
    try:
        return main(["data", *map(str, words)])
    except SystemExit as stopped:
        return int(stopped.code or 0)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture
def photos(tmp_path) -> Path:
    """24 pictures of three domains and two classes; one in rome is a worse copy of one in oslo."""
    root = tmp_path / "photos"
    cells = [(domain, name) for domain in ("bern", "oslo", "rome") for name in ("cat", "dog")]
    for number, (domain, name) in enumerate(cells * 4):
        (root / domain / name).mkdir(parents=True, exist_ok=True)
        scene(number, side=80).save(root / domain / name / f"{number}.png")
    with Image.open(root / "oslo" / "cat" / "2.png") as image:
        image.resize((70, 70)).save(root / "rome" / "dog" / "leak.jpg", quality=60)
    return root


def rows(out: str, title: str) -> list[list[str]]:
    """Return the cells of a printed table."""
    lines = out[out.index(f"{title}\n") :].splitlines()[3:]
    end = next((number for number, line in enumerate(lines) if not line.strip()), len(lines))
    return [re.split(r" {2,}", line.strip()) for line in lines[:end]]


def test_a_folder_with_a_planted_leak(photos, tmp_path, capsys):
    out = tmp_path / "report"
    assert run(photos, "--held-out", "rome", "--validation", "bern", "--out", out) == 0
    said = capsys.readouterr().out
    assert f"{photos}: 25 images of 3 domains, 2 classes" in said
    assert [row[0] for row in rows(said, "Samples by split")] == [
        "train",
        "unlabelled",
        "id_val",
        "ood_val",
        "ood_test",
    ]
    assert ["rome", "0", "4", "0", "0", "5", "9"] in rows(said, "Samples by domain")
    leak = next(line for line in said.splitlines() if "leak.jpg" in line)
    assert "oslo/cat/2.png" in leak
    assert "near" in leak
    assert files(out) == {"samples.csv", "duplicates.csv", "contact_sheet.png", "near_duplicates.png"}
    copies = pd.read_csv(out / "duplicates.csv")
    assert copies[["id", "other_id", "kind"]].to_numpy().tolist() == [["rome/dog/leak.jpg", "oslo/cat/2.png", "near"]]
    samples = pd.read_csv(out / "samples.csv", keep_default_na=False)
    assert len(samples) == 25
    assert list(samples) == ["id", "split", "domain", "target", "problem"]
    assert (
        samples.loc[samples["id"] == "rome/dog/leak.jpg", "problem"]
        .item()
        .startswith("near duplicate of oslo/cat/2.png")
    )
    for name in ("contact_sheet.png", "near_duplicates.png"):
        with Image.open(out / name) as sheet:
            assert np.asarray(sheet.convert("L")).std() > 10


def test_sheets_of_a_run_before_do_not_stay(photos, tmp_path, capsys):
    out = tmp_path / "report"
    assert run(photos, "--out", out) == 0
    assert "Duplicates of a sample in another domain: 0 exact, 1 near" in capsys.readouterr().out
    assert run(photos, "--near", "none", "--out", out) == 0
    assert "near ones were not looked for" in capsys.readouterr().out
    assert files(out) == {"samples.csv", "duplicates.csv", "contact_sheet.png"}


def test_broken_files_are_named_all_else_is_told_and_the_exit_code_is_1(photos, capsys):
    broken = photos / "oslo" / "dog" / "3.png"
    broken.write_bytes(broken.read_bytes()[:-3000])
    assert run(photos) == 1
    said = capsys.readouterr().out
    (row,) = rows(said, "Cannot be read: 1 of 25")
    assert row[1].startswith(f"{broken} cannot be decoded")
    assert ["dog", "13"] in rows(said, "Samples by class, where it is known")
    assert "--out FOLDER writes a contact sheet" in said


def test_many_domains_are_cut_with_the_largest_first(tmp_path, capsys):
    rng = np.random.default_rng(0)
    site = np.repeat(np.arange(50), np.arange(50) + 1)
    X = rng.normal(size=(len(site), 3))
    np.savez(tmp_path / "a.npz", x=X, y=rng.normal(size=len(site)), domain=site)
    assert run(tmp_path / "a.npz", "--most", 3) == 0
    said = capsys.readouterr().out
    assert [row[0] for row in rows(said, "Samples by domain")][:3] == ["49", "48", "47"]
    assert f"and 47 more, {len(site) - 50 - 49 - 48:,} samples" in said
    assert rows(said, "Targets by split")[0][:2] == ["train", "1,275"]
    assert re.search(r"[▁▂▃▄▅▆▇█]{5}", said)


def test_a_csv_of_texts_shows_some_of_them(tmp_path, capsys):
    texts = [f"The okapi is shy, {number}" for number in range(12)]
    texts[11] = texts[0] + "\n"
    frame = pd.DataFrame({"words": texts, "mood": ["good", "bad"] * 6, "site": ["a"] * 8 + ["b"] * 4})
    frame.loc[5, "mood"] = ""
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    words = ["--text", "words", "--target", "mood", "--domain", "site", "--held-out", "b", "--out", tmp_path / "out"]
    assert run(tmp_path / "t.csv.gz", *words) == 0
    said = capsys.readouterr().out
    assert ["unlabelled", "3", "2", "1", "2"] in rows(said, "Samples by split")
    assert {row[0] for row in rows(said, "Some texts")} == {"good", "bad"}
    assert "near ones are looked for among image files only" in said
    assert pd.read_csv(tmp_path / "out" / "duplicates.csv")["kind"].tolist() == ["exact"]
    assert files(tmp_path / "out") == {"samples.csv", "duplicates.csv"}


def test_a_config_is_told_as_training_would_see_it(photos, tmp_path, capsys):
    config = {
        "data": {"name": "image_folder", "held_out": "rome", "cache": str(tmp_path / "cache"), "verify": "pixels"},
        "model": {"name": "cnn"},
        "algorithm": {"name": "erm"},
        "training": {"steps": 1},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    (photos / "oslo" / "dog" / "3.png").write_text("broken")
    words = [tmp_path / "c.yaml", f"--data.root={photos}", "--data.id_val", "0.25"]
    assert run(*words) == 1
    said = capsys.readouterr().out
    assert [row[:2] for row in rows(said, "Samples by split")] == [
        ["train", "12"], ["unlabelled", "4"], ["id_val", "4"], ["ood_test", "5"],
    ]  # fmt: skip
    assert not (tmp_path / "cache").exists()
    assert run(*words, "--held-out", "oslo") == 2
    assert "--held-out is not for a config" in capsys.readouterr().err


def test_wilds_folders(tmp_path, capsys):
    (tmp_path / "i").mkdir()
    assert run(write_iwildcam(tmp_path / "i")) == 0
    said = capsys.readouterr().out
    assert "52 images of 11 domains, 4 classes" in said
    assert "Note: 1 class has no sample in train, but 10 in evaluation: '3'" in said
    (tmp_path / "c").mkdir()
    assert run(write_civilcomments(tmp_path / "c")) == 0
    assert "Samples by domain, of which a sample may have several" in capsys.readouterr().out
    (tmp_path / "i" / "iwildcam_v2.0" / "train" / "03.jpg").unlink()
    assert run(tmp_path / "i") == 1
    (row,) = rows(capsys.readouterr().out, "Cannot be read: 1 of 52")
    assert row[1].endswith("03.jpg does not exist")


REFUSED = {
    "gone": "gone does not exist",
    "notes.txt": r"notes\.txt: cannot read '\.txt'; want",
    "t.csv --target yy": "has no column 'yy'",
    "t.csv --target y --domain sitee": "has no column 'sitee'; did you mean site?",
    "t.csv --target y --domain site --split x --columns z": r"row 1, column 'x' must be one of 'train'",
    "t.csv --target y --domain site --held-out oslo": "--held-out must be domains",
    "t.csv --target y --domain site --near 40": "--near must be from 0 to 16 bits, or none, got 40",
    "t.csv --target y --domain site --near much": "--near must be a whole number or none, got 'much'",
    "t.csv --target y --domain site --most 0": "--most must be at least 1, got 0",
    "t.csv --target y --domain site --out notes.txt": r"notes\.txt is a file; --out names a folder",
    "t.csv --target y --domain site --data.fold B": r"--data\.fold is a key of configs, but .*t\.csv is none",
    "empty": "empty has no folders, one for each domain",
    "empty --text words": "--text says what a file holds, but .*empty is a folder",
    "empty --out empty/report": "--out must not be in the data",
    "bad.yaml": r"bad\.yaml: data\.name must be one of sites, .*; it is missing",
    "": "FILE_OR_FOLDER is missing",
}


@pytest.mark.parametrize("words", REFUSED)
def test_bad_input_is_named_in_a_sentence_and_nothing_is_written(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"x": [1.0, 2, 3, 4], "z": 7.0, "y": [0, 1, 0, 1], "site": list("aabb")})
    frame.to_csv("t.csv", index=False)
    Path("notes.txt").write_text("")
    Path("bad.yaml").write_text("model: {name: cnn}\n")
    Path("empty").mkdir()
    before = files(tmp_path)
    assert run(*words.split()) == 2
    said, errors = capsys.readouterr()
    assert said == ""
    assert re.search(REFUSED[words], errors)
    assert "Traceback" not in errors
    assert files(tmp_path) == before


def test_a_sheet_that_cannot_be_drawn_leaves_no_half_file(photos, tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    out = tmp_path / "report"
    monkeypatch.setattr("okapi.files.sync", fail)
    assert run(photos, "--out", out) == 1
    assert files(out) == set()


def test_help_says_what_the_exit_codes_are(capsys):
    assert run("--help") == 0
    said = capsys.readouterr().out
    assert "example:\n  okapi data photos/" in said
    assert "Exit code: 0; 1 if there are files that cannot be read" in said
    assert "(default: 6)" in said
    assert "_" not in "".join(re.findall(r"^  (--\S+)", said, re.MULTILINE))


def test_without_imagehash_a_sentence_says_how_to_get_near_duplicates(photos, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "imagehash", None)
    assert main(["data", str(photos), "--held-out", "rome"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Duplicates across splits: none" in said
    assert 'near duplicates are found with imagehash: pip install "okapi-ssl[duplicates]"' in said


def test_the_executable_prints_plain_text_to_a_file(photos):
    found = subprocess.run([OKAPI, "data", photos], capture_output=True, text=True, check=True, timeout=120)
    assert "\x1b" not in found.stdout
    assert found.stderr.splitlines()[:2] == [f"Reading {photos}", "Reading images: 25"]


def test_the_guide_shows_what_is_printed(tmp_path, monkeypatch, capsys):
    guide = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    known: dict[str, object] = {}
    exec(re.search(r"```python\n(.*?)```", guide, re.DOTALL)[1], known)  # makes the folder
    monkeypatch.chdir(known["photos"].parent)
    command, shown = re.search(r"```console\n\$ (okapi data photos .*)\n(photos: .*?)```", guide, re.DOTALL).groups()
    assert main(command.split()[1:]) == 0
    monkeypatch.chdir(tmp_path)
    known["folder"].cleanup()
    printed = capsys.readouterr().out
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


def messy(folder: Path) -> pd.DataFrame:
    """Return a table of 60 patients of which much is wrong, and write it."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "patient": np.arange(60) + 1000,
            "age": rng.integers(18, 90, 60).astype(object),
            "lab": np.where(np.arange(60) < 3, -999.0, rng.normal(5, 1, 60)),
            "sex": rng.choice(["f", "m"], 60),
            "ward": 7,
            "when": pd.date_range("2020-01-01", periods=60).astype(str),
            "site": rng.choice(["a", "b"], 60).astype(object),
            "sick": rng.integers(0, 2, 60).astype(object),
        }
    )
    frame.loc[[3, 4, 5], "age"] = ["", "unknown", "NA"]
    frame.loc[6, "site"] = "c"
    frame.loc[7, "site"] = ""
    frame.loc[8, "sick"] = 0.5
    frame.to_csv(folder / "messy.csv", index=False)
    return frame


def test_a_table_of_which_much_is_wrong_is_reported_to_its_end(tmp_path, capsys):
    messy(tmp_path)
    assert run(tmp_path / "messy.csv", "--domain", "site", "--target", "sick", "--task", "classification") == 1
    out = capsys.readouterr().out
    assert "58 samples of 3 domains, 2 classes" in out
    left = [row[0] for row in rows(out, "Left out: 2 rows")]
    assert left[0].endswith("row 8, column 'site' is missing")
    assert "row 9, column 'sick' must be a class, by name or whole number, got '0.5'" in left[1]
    assert "Note: 1 domain has a single sample: 'c'" in out
    told = {row[0]: row[1:] for row in rows(out, "Columns to look at")}
    assert told["patient"] == ["number", "0", "holds a different value in each row, as ids do"]
    assert told["age"] == ["number", "2", "1 cell is no finite number, first 'unknown' in row 5"]
    assert told["lab"][2].startswith("holds -999 in 3 rows, far from all else")
    assert told["ward"][2] == "holds 7 in every row"
    assert told["when"][2] == "holds dates or times"
    assert told["site"] == ["category", "1"]
    assert "sex" not in told


def test_whatever_is_wrong_with_labels_the_other_rows_are_reported(tmp_path, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=40), "name": [f"n{row}" for row in range(40)], "place": range(40)})
    frame["domain"], frame["target"], frame["split"] = (
        "a",
        ["dog", "cat"] * 20,
        ["train", "train", "id_val", "id_val"] * 10,
    )
    frame.loc[3, "name"] = "n2"  # twice
    frame.loc[4, "split"] = "validation"
    frame.loc[[5, 6], "place"] = 99  # a group in train and in id_val
    frame.loc[7, "target"] = "zebra"  # in id_val only
    frame.loc[8, "target"] = ""
    frame.to_csv(tmp_path / "t.csv", index=False)
    content = (tmp_path / "t.csv").read_bytes().replace(b"n30", b"n\xf630")
    (tmp_path / "t.csv").write_bytes(content)
    data = {"name": "table", "features": "x", "id": "name", "split": "split", "group": "place"}
    config = {"data": data | {"path": str(tmp_path / "t.csv")}, "model": {"name": "mlp"}, "algorithm": {"name": "erm"}}
    config["training"] = {"steps": 1}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    assert run(tmp_path / "c.yaml") == 1
    out = capsys.readouterr().out
    assert "34 samples of 1 domains" in out
    left = " ".join(row[0] for row in rows(out, "Left out: 6 rows"))
    assert "row 4, column 'name': 'n2' was there before" in left
    assert "row 5, column 'split' must be one of" in left
    assert "group '99' is in more than one split" in left
    assert "row 8, column 'target': class 'zebra' is in id_val" in left
    assert "row 9, column 'target' is missing" in left
    assert ["name", "other", "0", "holds neither numbers nor texts in UTF-8"] in rows(out, "Columns to look at")


@pytest.mark.parametrize("suffix", [".tsv", ".tsv.gz", ".parquet", ".feather", ".xlsx"])
def test_every_format_of_a_table_is_told_alike(tmp_path, capsys, suffix):
    frame = messy(tmp_path).assign(age=1.5, site="a", sick="0")
    frame.loc[::2, ["site", "sick"]] = ["b", "1"]
    path = tmp_path / f"t{suffix}"
    writers = {".parquet": frame.to_parquet, ".feather": frame.to_feather, ".xlsx": frame.to_excel}
    writers.get(suffix, lambda path, **_: frame.to_csv(path, sep="\t", index=False))(
        path, **({"index": False} if suffix == ".xlsx" else {})
    )
    assert run(path, "--domain", "site", "--target", "sick") == 0
    out = capsys.readouterr().out
    assert "60 samples of 2 domains, 2 classes" in out
    assert {"patient", "age", "lab", "ward", "when"} == {row[0] for row in rows(out, "Columns to look at")}
