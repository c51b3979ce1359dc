"""okapi predict and okapi.load as users meet them: a run whose data is gone, new samples, files and pages."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import okapi
from okapi.cli import main
from okapi.runs import Run

SITES = ("oslo", "rome")
KINDS = ("bird", "cat")


def draw(path: Path, kind: str, site: str, number: int) -> None:
    """Save an image: cats have horizontal stripes, birds vertical ones; sites differ a little in colour."""
    pixels = np.random.default_rng(number).integers(0, 60, (24, 24, 3), dtype=np.uint8)
    stripes = pixels if kind == "cat" else pixels.transpose(1, 0, 2)
    stripes[np.arange(24) % 4 < 2] += 120
    pixels[..., 0 if site == "oslo" else 2] += 30
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> tuple[Path, Path]:
    """Return a run that was trained on a folder of images, which has moved since, and a folder of new images."""
    folder = tmp_path_factory.mktemp("photos")
    for site in SITES:
        for kind in KINDS:
            for number in range(24):
                draw(folder / "photos" / site / kind / f"{number}.png", kind, site, number)
    config = folder / "photos.yaml"
    config.write_text(
        f"data: {{name: image_folder, root: {folder / 'photos'}, size: 24,\n"
        "  held_out: rome, unlabelled: 0.5, id_val: 0.25}\n"
        "model: {name: cnn, width: 8, out_features: 16}\n"
        "algorithm: {name: okapi_plus, bank: 64}\n"
        "training: {steps: 60, labelled_batch: 16, unlabelled_batch: 16, learning_rate: 0.01, accelerator: cpu}\n"
    )
    assert main(["train", str(config), "--out", str(folder / "run")]) == 0
    (folder / "photos").rename(folder / "elsewhere")
    for number in range(30):
        draw(folder / "new" / f"{KINDS[number % 2]}-{number}.png", KINDS[number % 2], "rome", 100 + number)
    (folder / "new" / "._cat-1.png").write_bytes(b"not an image")
    return folder / "run", folder / "new"


def test_new_images_in_each_format(photos, tmp_path, capsys):
    run, new = photos
    expected = okapi.load(run).predict(new)
    right = np.array([path.name.split("-")[0] for path in sorted(new.glob("[!.]*"))])
    assert (expected == right).mean() > 0.8
    frames = {}
    for suffix, read in {
        ".csv": pd.read_csv,
        ".parquet": pd.read_parquet,
        ".jsonl": lambda path: pd.read_json(path, lines=True),
    }.items():
        out = tmp_path / f"p{suffix}"
        assert main(["predict", str(run), str(new), "--out", str(out)]) == 0
        frames[suffix] = read(out)
        assert list(tmp_path.iterdir()) == [out]
        out.unlink()
    assert main(["predict", str(run), str(new), "--out", "-"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-30:] == frames[".csv"].to_csv(index=False).splitlines()[1:] or len(printed[-31:]) == 31
    frame = frames[".csv"]
    columns = ["id", "prediction", "probability_bird", "probability_cat", "entropy", "domain_shift"]
    assert list(frame) == columns
    assert frame["id"].tolist() == sorted(path.name for path in new.glob("[!.]*"))
    assert frame["prediction"].tolist() == expected.tolist()
    probability = frame[["probability_bird", "probability_cat"]].to_numpy()
    assert probability.sum(axis=1) == pytest.approx(np.ones(30))
    assert frame["entropy"].to_numpy() == pytest.approx(-(probability * np.log(probability)).sum(axis=1), abs=1e-6)
    for other in frames.values():
        pd.testing.assert_frame_equal(other, frame, check_dtype=False, atol=1e-6)


def test_shift_is_large_where_nothing_alike_was_labelled(photos, tmp_path, capsys):
    run, new = photos
    strange = tmp_path / "strange"
    strange.mkdir()
    for number in range(20):
        noise = np.random.default_rng(number).integers(0, 256, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(255 - noise // 8).save(strange / f"{number}.png")
    model = okapi.load(run)
    near, far = (model.frame(data.ids, model.outputs(data)) for data in (model.read(new), model.read(strange)))
    assert far["domain_shift"].median() > 2 * near["domain_shift"].median()
    assert main(["predict", str(run), str(strange), "--out", str(tmp_path / "p.csv")]) == 0
    assert "from the nearest labelled sample" in capsys.readouterr().err


def test_the_card_and_the_reference(photos):
    run, _ = photos
    card = okapi.load(run).card()
    assert card.startswith("---\nlibrary_name: okapi\n")
    for text in (
        "bird, cat",
        "## Metrics on id_val",
        "| oslo |",
        "id_val, metric accuracy",
        "ood_test) were not opened",
    ):
        assert text in card
    reference = okapi.load(run).reference
    assert set(reference.label) == {"bird", "cat"}
    distance, index = reference.nearest(reference.encoding, 1)
    assert distance.max() < 1e-5
    assert (index[:, 0] == np.arange(len(index))).mean() > 0.9
    assert Run(run).results().opened == {}


def test_the_report_shows_the_nearest_labelled_samples(photos, tmp_path, browser):
    run, new = photos
    written = tmp_path / "page.html"
    out = ["--out", str(tmp_path / "p.csv"), "--explain", str(written)]
    assert main(["predict", str(run), str(new), *out]) == 0
    page = browser.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.goto(written.as_uri())
    assert page.locator("#nearest .gallery > *").count() == 30
    page.close()
    assert troubles == []


def test_killed_it_is_resumed(photos, tmp_path):
    run, new = photos
    many = tmp_path / "many"
    many.mkdir()
    source = sorted(new.glob("[!.]*"))
    for number in range(6000):
        (many / f"{number:05d}.png").symlink_to(source[number % len(source)])
    command = [sys.executable, "-m", "okapi", "predict", str(run), str(many), "--out", str(tmp_path / "p.parquet")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    parts = tmp_path / "p.parquet.parts"
    deadline = time.monotonic() + 120
    while not (parts / "origin.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "p.parquet").exists()
    found = json.loads((parts / "origin.json").read_text())["done"]
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"Resuming: {found:,} of 6,000 samples are done" in again.stderr
    frame = pd.read_parquet(tmp_path / "p.parquet")
    expected = okapi.load(run).predict(new)
    assert frame["prediction"].tolist() == [expected[number % len(source)] for number in range(6000)]
    assert not parts.exists()


def test_a_table_by_its_ids(tmp_path, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(50, 9, 80), "sex": rng.choice(["f", "m"], 80)})
    frame["patient"] = [f"p{number}" for number in range(80)]
    frame["risk"] = frame.age / 10 + (frame.sex == "f")
    frame["hospital"] = np.repeat(["a", "b"], 40)
    frame["split"] = np.tile(["train", "train", "id_val", "unlabelled"], 20)
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = (
        "name: table, features: [age, sex], target: risk, domain: hospital, split: split, id: patient, task: regression"
    )
    (tmp_path / "c.yaml").write_text(
        f"data: {{path: {tmp_path / 't.csv'}, {data}}}\nmodel: {{name: mlp}}\nalgorithm: {{name: erm}}\n"
        "training: {steps: 30, labelled_batch: 16, learning_rate: 0.01, accelerator: cpu}\n"
    )
    assert main(["train", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "run")]) == 0
    new = frame.drop(columns=["risk", "hospital", "split"]).iloc[::-1]
    new.to_csv(tmp_path / "new.csv", index=False)
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "p.jsonl")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == new.patient.tolist()
    assert set(rows[0]) == {"id", "prediction", "domain_shift"}
    model = okapi.load(tmp_path / "run")
    assert model.classes == []
    np.testing.assert_allclose(model.predict(new), [row["prediction"] for row in rows], rtol=1e-5)
    capsys.readouterr()
    new.drop(columns="age").to_csv(tmp_path / "bad.csv", index=False)
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "bad.csv"), "--out", str(tmp_path / "q.csv")]) == 2
    assert "bad.csv has no column 'age'" in capsys.readouterr().err
    assert not list(tmp_path.glob("q.csv*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere", "DATA", "--out", "p.csv"], "nowhere does not exist"),
        (["RUN", "nowhere", "--out", "p.csv"], "nowhere does not exist"),
        (["RUN", "DATA", "--out", "p.txt"], "p.txt"),
        (["RUN", "DATA", "--out", "p.csv", "--explain", "p.pdf"], "p.pdf"),
        (["RUN", "DATA", "--out", "p.csv", "--batch-size", "0"], "--batch-size must be at least 1, got 0"),
        (["RUN", "EMPTY", "--out", "p.csv"], "EMPTY has no images"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(photos, tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    Path("EMPTY").mkdir()
    names = {"RUN": str(photos[0]), "DATA": str(photos[1])}
    assert main(["predict", *(names.get(word, word) for word in words)]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["EMPTY"]
