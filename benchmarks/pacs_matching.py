"""Pairs inside the fixed caliper on PACS, beside the counts in the paper's appendix.

The paper matched CLIP features; these are of EfficientNet-Lite0, so the numbers differ and the trends are compared.
The propensity is a logistic regression (scikit-learn's default penalty, classes weighted by inverse frequency) fitted
on the samples that are matched, its logit divided by the temperature. Under a penalty the scale of the features decides
how far the propensities spread, and the paper does not give that of its features. So the trends are shown for three:
features divided by the mean length of a sample, by the standard deviation of all values, and not divided. Everything
else here is at the first, which comes nearest to the unit vectors of online learning. k = 1, no std-caliper.
"""

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from _common import Report, machine_facts, run_script
from _tiny import write_pacs_features
from okapi.matching import Matches, caliper_nn

PROJECT = Path(__file__).resolve().parent.parent
ART, PHOTO, SKETCH = "art_painting", "photo", "sketch"
SCALES: dict[str, Callable[[np.ndarray], float]] = {
    "mean length": lambda x: float(np.linalg.norm(x, axis=1).mean()),
    "deviation": lambda x: float(x.std()),
    "not divided": lambda x: 1.0,
}
MAIN_SCALE = "mean length"


class Setting(NamedTuple):
    """A direction and the settings of its matching; ``threshold`` is the paper's t_f, 0 for no fixed caliper."""

    query: str
    key: str
    threshold: float
    temperature: float

    def __str__(self) -> str:
        caliper = f"$t_f$ = {self.threshold}, τ = {self.temperature}"
        return f"{self.query} → {self.key}, {caliper}".replace("_painting", "")


# The table `pacs_nsamples` of the paper, and two numbers from the text above it.
PAPER = {
    Setting(PHOTO, SKETCH, 0.1, 1): 0,
    Setting(SKETCH, PHOTO, 0.1, 1): 0,
    Setting(PHOTO, SKETCH, 0, 1): 1_540,
    Setting(SKETCH, PHOTO, 0, 1): 3_929,
    Setting(PHOTO, SKETCH, 0.01, 1): 6,
    Setting(SKETCH, PHOTO, 0.01, 1): 9,
    Setting(PHOTO, SKETCH, 0.01, 1.3): 14,
    Setting(SKETCH, PHOTO, 0.01, 1.3): 56,
    Setting(PHOTO, SKETCH, 0.01, 1.8): 25,
    Setting(SKETCH, PHOTO, 0.01, 1.8): 574,
    Setting(PHOTO, SKETCH, 0.01, 2.5): 41,
    Setting(SKETCH, PHOTO, 0.01, 2.5): 3_082,
    Setting(PHOTO, SKETCH, 0.01, 10): 1_540,
    Setting(SKETCH, PHOTO, 0.01, 10): 3_929,
    Setting(PHOTO, SKETCH, 0.1, 10): 298,
    Setting(SKETCH, PHOTO, 0.1, 10): 3_929,
    Setting(PHOTO, ART, 0.1, 1): 1_142,
    Setting(ART, PHOTO, 0.1, 1): 1_501,
}
PHOTO_TO_SKETCH, SKETCH_TO_PHOTO = (PHOTO, SKETCH), (SKETCH, PHOTO)
SHOWN = (
    Setting(PHOTO, SKETCH, 0.01, 1),
    Setting(SKETCH, PHOTO, 0.01, 1),
    Setting(PHOTO, ART, 0.1, 1),
    Setting(ART, PHOTO, 0.1, 1),
)


# --- Trends -----------------------------------------------------------------------------------------------------------
# What a table of counts shows; judged on the paper's counts and on those measured here.

Counts = Mapping[Setting, int]


def warmer_keeps_more(counts: Counts) -> bool:
    """Never fewer pairs at a higher temperature (t_f 0.01)."""
    return all(
        _ascending(counts[Setting(*direction, 0.01, temperature)] for temperature in (1, 1.3, 1.8, 2.5, 10))
        for direction in (PHOTO_TO_SKETCH, SKETCH_TO_PHOTO)
    )


def wider_keeps_more(counts: Counts) -> bool:
    """Never fewer pairs at a lower threshold (τ 1 and 10)."""
    return all(
        _ascending(counts[Setting(*direction, threshold, temperature)] for threshold in thresholds)
        for direction in (PHOTO_TO_SKETCH, SKETCH_TO_PHOTO)
        for temperature, thresholds in ((1, (0.1, 0.01, 0)), (10, (0.1, 0.01)))
    )


def strict_finds_nothing(counts: Counts) -> bool:
    """No pair of photo and sketch at t_f 0.1, τ 1."""
    return counts[Setting(PHOTO, SKETCH, 0.1, 1)] == counts[Setting(SKETCH, PHOTO, 0.1, 1)] == 0


def warm_keeps_all(counts: Counts) -> bool:
    """As many pairs at t_f 0.01, τ 10 as without a caliper."""
    return all(
        counts[Setting(*direction, 0.01, 10)] == counts[Setting(*direction, 0, 1)]
        for direction in (PHOTO_TO_SKETCH, SKETCH_TO_PHOTO)
    )


def warm_and_strict_drops_photos(counts: Counts) -> bool:
    """At t_f 0.1, τ 10 every sketch is paired, but not every photo."""
    every_sketch = counts[Setting(SKETCH, PHOTO, 0.1, 10)] == counts[Setting(SKETCH, PHOTO, 0, 1)]
    return every_sketch and counts[Setting(PHOTO, SKETCH, 0.1, 10)] < counts[Setting(PHOTO, SKETCH, 0, 1)]


def sketches_find_more(counts: Counts) -> bool:
    """Sketch → photo finds no fewer pairs than photo → sketch in any row."""
    return all(
        counts[Setting(SKETCH, PHOTO, *rest)] >= count
        for (query, key, *rest), count in counts.items()
        if (query, key) == PHOTO_TO_SKETCH
    )


def art_is_nearer(counts: Counts) -> bool:
    """At t_f 0.1, τ 1 photo and art have more pairs than photo and sketch, in both directions."""
    to_art = counts[Setting(PHOTO, ART, 0.1, 1)] > counts[Setting(PHOTO, SKETCH, 0.1, 1)]
    return to_art and counts[Setting(ART, PHOTO, 0.1, 1)] > counts[Setting(SKETCH, PHOTO, 0.1, 1)]


def art_finds_more(counts: Counts) -> bool:
    """Art → photo finds more pairs than photo → art."""
    return counts[Setting(ART, PHOTO, 0.1, 1)] > counts[Setting(PHOTO, ART, 0.1, 1)]


TRENDS = (
    warmer_keeps_more,
    wider_keeps_more,
    strict_finds_nothing,
    warm_keeps_all,
    warm_and_strict_drops_photos,
    sketches_find_more,
    art_is_nearer,
    art_finds_more,
)


def _ascending(values: Iterable[int]) -> bool:
    return all(earlier <= later for earlier, later in pairwise(values))


# --- Matching ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pacs:
    """Features (n, 1280), domain, label and path of every image, in one order."""

    folder: Path
    x: np.ndarray
    domain: np.ndarray
    label: np.ndarray
    path: np.ndarray

    @classmethod
    def read(cls, folder: Path) -> "Pacs":
        """Read ``pacs_features.npz``; the images stay on disk."""
        with np.load(folder / "pacs_features.npz") as arrays:
            x = arrays["x"].astype(np.float32)
            return cls(folder / "pacs", x, arrays["domain"], arrays["label"], arrays["path"])

    def rows(self, domain: str) -> np.ndarray:
        """Return the rows of one domain."""
        return np.flatnonzero(self.domain == domain)


def propensity_logits(x: np.ndarray, domain: np.ndarray) -> np.ndarray:
    """Return the log-odds of domain 1 for each sample, (n,)."""
    model = LogisticRegression(class_weight="balanced", tol=1e-6, max_iter=10_000)
    return model.fit(x, domain).decision_function(x)


class Matching:
    """PACS with the propensities of photo against one other domain at one scale.

    Parameters
    ----------
    pacs : Pacs
    other : str
        The domain beside photo; photo is domain 0.
    scale : str
        Name of the number that divides the features, see ``SCALES``.
    """

    def __init__(self, pacs: Pacs, other: str, scale: str) -> None:
        self.pacs = pacs
        self.rows = {name: pacs.rows(name) for name in (PHOTO, other)}
        self.domain = {PHOTO: 0, other: 1}
        both = np.concatenate(list(self.rows.values()))
        x = pacs.x[both].astype(np.float64) / SCALES[scale](pacs.x[both])
        logits = propensity_logits(x, pacs.domain[both] == other)
        self.logit = dict(zip(self.rows, np.split(logits, [len(self.rows[PHOTO])]), strict=True))

    def propensity(self, name: str, temperature: float) -> np.ndarray:
        """Return the scores of one domain's samples."""
        return expit(self.logit[name] / temperature)

    def match(self, setting: Setting) -> Matches:
        """Match in one direction; rows of the result count within the domains."""
        query, key, threshold, temperature = setting
        return caliper_nn(
            self.pacs.x[self.rows[query]],
            self.pacs.x[self.rows[key]],
            query_domain=np.full(len(self.rows[query]), self.domain[query]),
            key_domain=np.full(len(self.rows[key]), self.domain[key]),
            query_propensity=self.propensity(query, temperature),
            key_propensity=self.propensity(key, temperature),
            fixed_caliper=threshold or None,
        )

    def pairs(self, setting: Setting) -> np.ndarray:
        """Return the matched pairs as rows of PACS, (m, 2)."""
        matches = self.match(setting)
        query, key = self.rows[setting.query][matches.query], self.rows[setting.key][matches.key[:, 0]]
        return np.stack([query, key], axis=1)


def match_all(pacs: Pacs, scale: str) -> tuple[dict[str, Matching], dict[Setting, np.ndarray]]:
    """Return the matchings by the domain beside photo, and the pairs of every setting in the paper."""
    matchings = {other: Matching(pacs, other, scale) for other in (SKETCH, ART)}
    return matchings, {
        setting: next(m for other, m in matchings.items() if other in setting).pairs(setting) for setting in PAPER
    }


# --- Figures ----------------------------------------------------------------------------------------------------------

COLOURS = {PHOTO: "tab:blue", SKETCH: "tab:gray", ART: "tab:orange"}


def propensity_figure(matchings: Mapping[str, Matching]) -> Figure:
    figure = Figure(figsize=(9, 5.4), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True)
    entries = {}
    for row, (other, matching) in zip(grid, matchings.items(), strict=True):
        for axes, temperature in zip(row, (1, 10), strict=True):
            for name in (PHOTO, other):
                scores = matching.propensity(name, temperature)
                weights = np.full(len(scores), 1 / len(scores))
                *_, bars = axes.hist(scores, np.linspace(0, 1, 51), weights=weights, color=COLOURS[name], alpha=0.6)
                entries[name.replace("_", " ")] = bars
            for edge in (0.1, 0.9):
                line = axes.axvline(edge, color="black", linewidth=0.8, linestyle="--")
            axes.set_title(f"photo and {other.replace('_', ' ')}, τ = {temperature}", fontsize=10)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel("share of the domain")
    for axes in grid[1]:
        axes.set_xlabel("propensity: probability of the domain that is not photo")
    entries["fixed caliper, $t_f$ = 0.1"] = line
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=len(entries), frameon=False)
    return figure


def image_figure(pacs: Pacs, pairs: Mapping[Setting, np.ndarray], columns: int = 14) -> Figure:
    """Show pairs drawn at random from each shown setting, sorted by the query's class: query above, match below."""
    rng = np.random.default_rng(0)
    figure = Figure(figsize=(columns * 0.92, len(SHOWN) * 2.25), layout="constrained")
    for setting, part in zip(SHOWN, figure.subfigures(len(SHOWN), 1), strict=True):
        matched = pairs[setting]
        drawn = rng.permutation(matched)[:columns]
        drawn = drawn[np.argsort(pacs.label[drawn[:, 0]], kind="stable")]
        keys = len(np.unique(matched[:, 1]))
        summary = f"{len(matched):,} pairs, {_same_class(pacs, matched)} of one class, {keys:,} different keys"
        part.suptitle(f"{setting}: {summary}", fontsize=11)
        grid = part.subplots(2, columns, squeeze=False)
        for column in grid.T[len(drawn) :].flat:
            column.set_axis_off()
        for column, pair in zip(grid.T, drawn, strict=False):
            _show_pair(pacs, column, pair)
    return figure


def _show_pair(pacs: Pacs, column: Iterable[Axes], pair: np.ndarray) -> None:
    query, key = pair
    colour = "tab:green" if pacs.label[query] == pacs.label[key] else "tab:red"
    for axes, row in zip(column, pair, strict=True):
        with Image.open(pacs.folder / pacs.path[row]) as image:
            axes.imshow(image.convert("RGB"))
        axes.set(xticks=[], yticks=[])
        axes.set_xlabel(pacs.label[row], fontsize=8, labelpad=1)
        axes.spines[:].set(color=colour, linewidth=2.5)


# --- Report -----------------------------------------------------------------------------------------------------------


def _same_class(pacs: Pacs, pairs: np.ndarray) -> str:
    return f"{(pacs.label[pairs[:, 0]] == pacs.label[pairs[:, 1]]).mean():.0%}" if len(pairs) else "-"


def count_rows(pacs: Pacs, pairs: Mapping[Setting, np.ndarray]) -> Iterator[list[str]]:
    """Yield a row per caliper and domain pair: both directions beside the paper's."""
    for setting, count in PAPER.items():
        if setting.query != PHOTO:
            continue
        back = Setting(setting.key, PHOTO, *setting[2:])
        yield [
            f"photo, {setting.key.removesuffix('_painting')}",
            str(setting.threshold or "off"),
            str(setting.temperature),
            *(f"{number:,}" for number in (len(pairs[setting]), count)),
            _same_class(pacs, pairs[setting]),
            *(f"{number:,}" for number in (len(pairs[back]), PAPER[back])),
            _same_class(pacs, pairs[back]),
        ]


def trend_rows(counts: Mapping[str, Counts]) -> Iterator[list[str]]:
    """Yield a row per trend: whether the paper shows it and whether the counts at each scale agree with the paper."""
    for trend in TRENDS:
        paper = trend(PAPER)
        verdicts = ["agree" if trend(table) == paper else "disagree" for table in counts.values()]
        yield [trend.__doc__.rstrip("."), "yes" if paper else "no", *verdicts]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="example: python benchmarks/pacs_matching.py --data ~/data",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    data = Path(os.environ.get("OKAPI_DATA", PROJECT.parent / "shared" / "data"))
    text = "folder with pacs_features.npz and pacs/ (default: $OKAPI_DATA, else ../shared/data beside the project)"
    parser.add_argument("--data", type=Path, default=data, help=text)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"), help="folder of the page and the figures")
    run_script(parser, compare, tiny, words)


def tiny(folder: Path) -> list[str]:
    """Return a command line for tiny data and images of this folder."""
    with np.load(write_pacs_features(folder)) as arrays:
        for number, name in enumerate(arrays["path"]):
            path = folder / "pacs" / str(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (number % 256, 0, 0)).save(path)
    return ["--data", str(folder), "--out", str(folder / "out")]


def compare(arguments: argparse.Namespace) -> None:
    """Match, and write the page and the figures."""
    if not (arguments.data / "pacs_features.npz").exists():
        raise SystemExit(f"no pacs_features.npz in {arguments.data}: give --data, or set OKAPI_DATA")
    pacs = Pacs.read(arguments.data)
    report = Report("Matching: PACS", arguments.out)
    report.add(machine_facts("torch", "scikit-learn", "okapi-ssl"))
    report.add(__doc__.partition("\n\n")[2].strip())
    results = {scale: match_all(pacs, scale) for scale in SCALES}
    matchings, pairs = results[MAIN_SCALE]

    report.add("## Pairs found")
    header = ("domains", "t_f", "τ", "from photo", "paper", "same class", "to photo", "paper", "same class")
    report.add_table(header, list(count_rows(pacs, pairs)))
    report.add(
        f"The paper's table has 1,540 photos even where no caliper is applied; the data set, and its text, have "
        f"{len(pacs.rows(PHOTO)):,}. Its t_f = 0 is no caliper."
    )
    report.add("## Trends")
    counts = {scale: {name: len(matched) for name, matched in pairs.items()} for scale, (_, pairs) in results.items()}
    report.add_table(("trend", "paper", *counts), list(trend_rows(counts)))

    report.add("## Propensities and pairs")
    report.add_figure(propensity_figure(matchings), "pacs_propensity", "Propensities at temperature 1 and 10")
    report.add_figure(image_figure(pacs, pairs), "pacs_pairs", "Matched images, green where of one class", ("png",))
    report.write("pacs_matching.md")


if __name__ == "__main__":
    main()
