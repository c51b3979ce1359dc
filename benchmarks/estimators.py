"""The estimators' defaults beside scikit-learn's and skada's, on real sites: labels at some, the target's without.

    python benchmarks/prepare_data.py DATA PREPARED
    python benchmarks/estimators.py DATA PREPARED

DATA is the folder of the raw files, PREPARED that of the files made of them. Of a target half the rows are unlabelled
and the other half is the test; where the data have splits of their own, those. Nobody is tuned: each method has its
defaults, but for as many iterations as it asks for. Features are standardised for all. Methods whose time or memory
grows with the square of the rows see at most 4,000, drawn at random. Where skada is not installed its rows say so.

Each finished row is appended to the CSV file of ``--out``; started again, the script makes the rows that are missing.
``--fit`` measures the time of a fit of 10,000 rows of 1,280 features instead.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from _common import machine_facts, markdown_table, run_script
from _tiny import write_pacs_features
from okapi import OkapiClassifier, OkapiRegressor

FILES = {
    "pacs": "pacs_features.npz",
    "digits": "digits.npz",
    "lsms": "lsms.npz",
    "sentiment": "sentiment.npz",
    "audio": "audiomnist.npz",
}
TARGETS = {
    "pacs": ("art_painting", "cartoon", "photo", "sketch"),
    "digits": ("mnist", "usps", "optdigits"),
    "lsms": ("tanzania", "uganda", "nigeria"),
    "sentiment": ("books", "dvd", "electronics", "kitchen", "imdb", "airline"),
    "audio": ("new speakers",),
}
MOST_SQUARED = 4_000


@dataclass(frozen=True)
class Problem:
    """Labelled rows, unlabelled rows of the target, and its test."""

    X: NDArray[np.float32]
    y: NDArray[Any]
    domain: NDArray[Any]
    unlabelled: NDArray[np.float32]
    unlabelled_domain: NDArray[Any]
    X_test: NDArray[np.float32]
    y_test: NDArray[Any]

    @property
    def regression(self) -> bool:
        """Whether numbers are predicted."""
        return self.y.dtype.kind == "f"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("prepared", type=Path, metavar="PREPARED")
    parser.add_argument("--out", type=Path, default=Path("research/estimators.csv"))
    parser.add_argument("--only", nargs="+", choices=list(FILES), default=list(FILES))
    parser.add_argument("--methods", nargs="+", help="some methods (default: all)")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="of the estimators of Okapi (default: theirs)")
    parser.add_argument("--fit", action="store_true", help="measure the time of a large fit")
    run_script(parser, study, tiny, words)


def tiny(folder: Path) -> list[str]:
    """Return a command line for short fits on tiny data of this folder."""
    write_pacs_features(folder, each=60)
    some = ["--only", "pacs", "--methods", "okapi_plus", "logistic regression", "--seeds", "1", "--steps", "2"]
    return [str(folder), str(folder), "--out", str(folder / "out.csv"), *some]


def study(chosen: argparse.Namespace) -> None:
    """Make the rows that are missing, and print a table of each data set."""
    print(machine_facts())
    if chosen.fit:
        print(time_of_fit())
        return
    for name in chosen.only:
        places = [folder / FILES[name] for folder in (chosen.prepared, chosen.data)]
        path = next((place for place in places if place.exists()), None)
        if path is None:
            raise SystemExit(f"neither {places[0]} nor {places[1]} exists")
        for target in TARGETS[name]:
            for seed in range(chosen.seeds):
                run(name, target, seed, path, chosen)
        print(table(pd.read_csv(chosen.out), name), flush=True)


def run(name: str, target: str, seed: int, path: Path, chosen: argparse.Namespace) -> None:
    """Append the rows of a target and a seed that are not in the file."""
    done = (
        pd.read_csv(chosen.out) if chosen.out.exists() else pd.DataFrame(columns=["data", "target", "seed", "method"])
    )
    problem = load(name, target, path)
    for method, build in methods(problem, seed, chosen.steps).items():
        same = (done.data == name) & (done.target == target) & (done.seed == seed) & (done.method == method)
        if same.any() or (chosen.methods and method not in chosen.methods):
            continue
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            score = build(problem)
        row = {"data": name, "target": target, "seed": seed, "method": method, "score": score}
        frame = pd.DataFrame([row | {"seconds": time.perf_counter() - began}])
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        frame.to_csv(chosen.out, mode="a", header=not chosen.out.exists(), index=False)


def load(name: str, target: str, path: Path) -> Problem:
    """Return the problem of a target; halves are drawn by seed 0, the same for all."""
    with np.load(path, allow_pickle=False) as file:
        names = set(file.files)
        x = file["x"].astype(np.float32)
        y = file["label" if "label" in names else "y"]
        domain = file["domain" if "domain" in names else "country"]
        split = file["split"] if "split" in names and name == "audio" else None
    x = x.reshape(len(x), -1)
    if split is not None:
        train, others, test = (np.isin(split, part) for part in ("train", "unlabelled", "ood_test"))
    else:
        if name == "lsms":
            keep = np.isin(domain, [*TARGETS["lsms"], "malawi"])
            x, y, domain = x[keep], y[keep].astype(np.float64), domain[keep]
        half = np.random.default_rng(0).random(len(x)) < 0.5
        train, others, test = domain != target, (domain == target) & half, (domain == target) & ~half
    return Problem(x[train], y[train], domain[train], x[others], domain[others], x[test], y[test])


def methods(problem: Problem, seed: int, steps: int | None) -> dict[str, Callable[[Problem], float]]:
    """Return what fits a problem and scores its test, by name: accuracy, in regression Pearson's r."""
    ours = {} if steps is None else {"steps": steps}
    kind: Any = OkapiRegressor if problem.regression else OkapiClassifier
    found: dict[str, Callable[[Problem], float]] = {
        name: _okapi(kind(name, random_state=seed, **ours)) for name in ("okapi_plus", "okapi", "fixmatch", "erm")
    }
    if problem.regression:
        return found | {
            "ridge regression": _supervised(Ridge()),
            "gradient boosting": _supervised(HistGradientBoostingRegressor(random_state=seed)),
        }
    return found | {
        "logistic regression": _supervised(LogisticRegression(max_iter=1000)),
        "gradient boosting": _supervised(HistGradientBoostingClassifier(random_state=seed)),
        "SelfTraining": _semi_supervised(SelfTrainingClassifier(LogisticRegression(max_iter=1000)), None, seed),
        "LabelSpreading": _semi_supervised(LabelSpreading(kernel="knn"), MOST_SQUARED, seed),
        **{name: _skada(name, seed) for name in ("CORAL", "OTMapping", "TransferComponentAnalysis")},
    }


def _okapi(model: Any) -> Callable[[Problem], float]:
    def fit(problem: Problem) -> float:
        model.fit(problem.X, problem.y, X_unlabelled=problem.unlabelled)
        return _score(model.predict(problem.X_test), problem)

    return fit


def _supervised(model: BaseEstimator) -> Callable[[Problem], float]:
    def fit(problem: Problem) -> float:
        pipeline = make_pipeline(StandardScaler(), model).fit(problem.X, problem.y)
        return _score(pipeline.predict(problem.X_test), problem)

    return fit


def _semi_supervised(model: BaseEstimator, most: int | None, seed: int) -> Callable[[Problem], float]:
    def fit(problem: Problem) -> float:
        few = _thinned(problem, most, seed)
        classes, numbers = np.unique(few.y, return_inverse=True)
        y = np.concatenate([numbers, np.full(len(few.unlabelled), -1)])
        pipeline = make_pipeline(StandardScaler(), model).fit(np.concatenate([few.X, few.unlabelled]), y)
        return _score(classes[pipeline.predict(problem.X_test)], problem)

    return fit


def _skada(name: str, seed: int) -> Callable[[Problem], float]:
    def fit(problem: Problem) -> float:
        if find_spec("skada") is None:
            return float("nan")
        import skada

        few = _thinned(problem, MOST_SQUARED, seed)
        classes, numbers = np.unique(few.y, return_inverse=True)
        scaler = StandardScaler().fit(few.X)
        X = scaler.transform(np.concatenate([few.X, few.unlabelled]))
        y = np.concatenate([numbers, np.full(len(few.unlabelled), -1)])
        sample_domain = np.concatenate([np.ones(len(few.X)), np.full(len(few.unlabelled), -2)]).astype(int)
        adapter = {
            "CORAL": skada.CORALAdapter,
            "OTMapping": skada.OTMappingAdapter,
            "TransferComponentAnalysis": skada.TransferComponentAnalysisAdapter,
        }[name]()
        model = skada.make_da_pipeline(adapter, LogisticRegression(max_iter=1000)).fit(
            X, y, sample_domain=sample_domain
        )
        return _score(classes[model.predict(scaler.transform(problem.X_test))], problem)

    return fit


def _thinned(problem: Problem, most: int | None, seed: int) -> Problem:
    """Return the problem with at most so many rows to learn from, labelled and unlabelled in their proportion."""
    n = len(problem.X) + len(problem.unlabelled)
    if most is None or n <= most:
        return problem
    rng = np.random.default_rng(seed)
    keep = [np.sort(rng.permutation(len(part))[: most * len(part) // n]) for part in (problem.X, problem.unlabelled)]
    return Problem(
        problem.X[keep[0]],
        problem.y[keep[0]],
        problem.domain[keep[0]],
        problem.unlabelled[keep[1]],
        problem.unlabelled_domain[keep[1]],
        problem.X_test,
        problem.y_test,
    )


def _score(predicted: NDArray[Any], problem: Problem) -> float:
    if problem.regression:
        return float(np.corrcoef(predicted, problem.y_test)[0, 1])
    return float(np.mean(predicted == problem.y_test))


def table(frame: pd.DataFrame, name: str) -> str:
    """Return the means over seeds of each target, and the mean over targets with its deviation over seeds."""
    own = frame[frame.data == name]
    scale, digits = (1, 3) if name == "lsms" else (100, 1)
    lines = []
    for method in own.method.unique():
        rows = own[own.method == method]
        cells = [f"{scale * rows.score[rows.target == target].mean():.{digits}f}" for target in TARGETS[name]]
        seeds = scale * rows.groupby("seed").score.mean()
        spread = f" ({seeds.std():.{digits}f})" if len(seeds) > 1 else ""
        lines.append([method, *cells, f"{seeds.mean():.{digits}f}{spread}", f"{rows.seconds.mean():.1f}"])
    heads = ["method", *TARGETS[name], "mean (deviation over seeds)", "seconds a fit"]
    metric = "Pearson's r" if name == "lsms" else "accuracy"
    return f"\n## {name}, {metric} on the target's test half\n\n" + markdown_table(heads, lines)


def time_of_fit() -> str:
    """Return how long the default classifier takes on 10,000 rows of 1,280 features, half of them unlabelled."""
    rng = np.random.default_rng(0)
    y = np.arange(10_000) % 7
    X = (rng.normal(size=(7, 1280))[y] + 3 * rng.normal(size=(10_000, 1280))).astype(np.float32)
    some = np.where(np.arange(10_000) < 5_000, y, -1)
    began = time.perf_counter()
    OkapiClassifier(random_state=0).fit(X, some)
    return f"OkapiClassifier().fit of 10,000 x 1,280: {time.perf_counter() - began:.1f} s"


if __name__ == "__main__":
    main()
