import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from okapi.report import match_page, sample_pairs, thumbnails, tune_page
from okapi.report.match_page import rule_of

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">&\u2028'"
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="300pt" height="100pt" viewBox="0 0 300 100">{}</svg>'


def make_pairs(queries: int = 20, k: int = 3, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    query = np.repeat(np.arange(queries), k)
    return pd.DataFrame(
        {
            "query": query,
            "rank": np.tile(np.arange(1, k + 1), queries),
            "key": rng.integers(0, queries, len(query)),
            "distance": np.sort(rng.gamma(2, 5, (queries, k)), axis=1).ravel(),
            "query_domain": np.array(["oslo", "rome"])[query % 2],
            "key_domain": np.array(["rome", "oslo"])[query % 2],
        }
    )


def make_page(**changes) -> str:
    arguments = {
        "title": "Matches",
        "facts": {"samples": 48210},
        "settings": {"k": 3, "two-way": True, "direction": None},
        "removed": pd.DataFrame({"caliper": ["fixed"], "queries": [3]}),
        "balance_pairs": pd.DataFrame({"domains": ["a, b"], "max_abs_smd_after": [0.04]}),
        "balance_table": pd.DataFrame(
            {"covariate": ["age", "bmi"], "smd_before": [0.5, -0.3], "smd_after": [0.1, 0.11]}
        ),
        "figures": [],
        "pairs": make_pairs(),
    }
    return match_page(**{**arguments, **changes})


def pairs_of(page: str) -> int:
    """Return how many rows the table of pairs has."""
    return re.search(r'<table id="pairs-table".*?<tbody>(.*?)</tbody>', page, re.S)[1].count("<tr>")


class Tags(HTMLParser):
    """Every tag and attribute of a page, as a browser would find them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


# The page


def test_the_page_loads_nothing_from_elsewhere():
    tags = Tags(make_page(figures=[("A line", SVG.format('<path d="M0 0L9 9"/>'))])).found
    for _, attributes in tags:
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    assert not re.search(r"url\(|@import", make_page())


def test_values_outside_the_rules_of_thumb_are_marked():
    assert re.findall(r"<mark>([^<]+)</mark></td>", make_page()) == ["0.500", "-0.300", "0.110"]
    ratios = pd.DataFrame({"variance_ratio": [0.8, 0.79, 1.25, 1.26, np.nan, np.inf]})
    page = make_page(balance_table=ratios)
    assert re.findall(r"<mark>([^<]+)</mark></td>", page) == ["0.790", "1.260", "∞"]


def test_a_long_table_shows_the_rows_furthest_from_balance():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"covariate": [f"c{i}" for i in range(5000)], "smd_after": rng.normal(size=5000)})
    page = make_page(balance_table=table)
    assert "The first 300 of 5,000 rows are shown." in page
    assert f"<td>{table['covariate'][table['smd_after'].abs().idxmax()]}</td>" in page


def test_the_index_of_a_table_is_a_column_where_it_has_a_name():
    page = make_page(balance_table=pd.DataFrame({"smd": [0.0]}, index=pd.Index(["age"], name="covariate")))
    assert "<td>age</td>" in page


@pytest.mark.parametrize(
    "place", ["title", "domain", "id", "column", "covariate", "caption", "note", "fact", "setting"]
)
def test_hostile_text_stays_text(place: str):
    pairs = make_pairs()
    if place == "domain":
        pairs["query_domain"] = HOSTILE
    if place == "id":
        pairs["query"] = [f"{HOSTILE}{i}" for i in pairs["query"]]
    changes = {
        "title": {"title": HOSTILE},
        "column": {"pairs": pairs.assign(**{HOSTILE: 1}), "removed": pd.DataFrame({HOSTILE: [1]})},
        "covariate": {"balance_table": pd.DataFrame({"covariate": [HOSTILE]})},
        "caption": {"figures": [(HOSTILE, SVG.format(""))]},
        "note": {"notes": [HOSTILE]},
        "fact": {"facts": {HOSTILE: HOSTILE}},
        "setting": {"settings": {HOSTILE: HOSTILE}},
    }
    page = make_page(**{"pairs": pairs, **changes.get(place, {})})
    tags = Tags(page).found
    assert not any("onerror" in attributes for _, attributes in tags)
    assert not [attributes for tag, attributes in tags if tag == "img" and not attributes["src"].startswith("data:")]
    assert sum(tag == "script" for tag, _ in tags) == 1
    assert pairs_of(page) == 60


def test_pairs_keep_numbers_gaps_and_large_integers():
    pairs = make_pairs(2, 1).assign(distance=[1 / 3, np.nan], query=[2**60, 2**60 + 1], ok=[True, None])
    page = make_page(pairs=pairs)
    for text in (f'data-value="{1 / 3}">0.333<', ">–<", f">{2**60 + 1}<", ">True<"):
        assert text in page


def test_an_empty_matching_has_a_page():
    page = make_page(pairs=make_pairs().head(0), removed=pd.DataFrame(), balance_table=pd.DataFrame({"smd": []}))
    assert pairs_of(page) == 0


def test_before_and_after_stand_below_one_heading():
    page = make_page()
    assert '<th scope="colgroup" colspan="2" class="group">SMD</th></tr>' in page
    assert '<th scope="col" class="number">before</th><th scope="col" class="number">after</th></tr>' in page
    assert '<th scope="col" class="number">max |SMD| after</th>' in page  # alone, it keeps its name


def test_the_rules_are_called_by_what_they_leave_with_thousands_apart():
    page = make_page(removed=pd.DataFrame({"rule": ["pairs across domains"], "pairs": [71905500]}))
    assert '<h2 id="removed-title">Flow of samples: what each rule leaves</h2>' in page
    assert ">71,905,500</td>" in page


def test_shares_of_covariates_within_a_rule_are_not_held_to_it():
    assert rule_of("max_abs_smd_after") == "smd"
    assert rule_of("variance_ratio_before") == "variance ratio"
    assert rule_of("smd_share_after") is None
    assert rule_of("variance_ratio_share") is None


def test_the_page_of_a_search_has_everything_and_escapes_it():
    n_rows = 400
    page = tune_page(
        title="Calipers of <t.csv>",
        facts={"combinations": n_rows},
        settings={"k": "1, 5"},
        combinations=pd.DataFrame({"std": ["<none>"] * n_rows, "max_abs_smd": np.arange(n_rows) / 20 + 0.05}),
        figures=[("Pareto front", SVG.format(""))],
        notes=["the best: <x>"],
    )
    for text in ("Calipers of &lt;t.csv&gt;", "&lt;none&gt;", "the best: &lt;x&gt;", 'alt="Pareto front"'):
        assert text in page
    assert "<mark>0.15" in page
    assert "<mark>0.05" not in page
    assert "The first 300 of 400 rows are shown." in page


# The sample


def test_a_sample_keeps_queries_whole_and_has_the_extremes():
    pairs = make_pairs(1000, 3)
    sample = sample_pairs(pairs, 300)
    assert 290 <= len(sample) <= 300
    assert sample.groupby("query").size().eq(3).all()
    assert sample.index.is_monotonic_increasing
    assert {pairs["distance"].idxmin(), pairs["distance"].idxmax()} <= set(sample.index)
    pd.testing.assert_frame_equal(sample, sample_pairs(pairs, 300))
    middle = sample[sample["distance"].between(*pairs["distance"].quantile([0.3, 0.7]))]
    assert len(middle) > 20


def test_the_page_says_that_it_shows_a_sample():
    page = make_page(pairs=make_pairs(4000, 3))
    assert 1900 < pairs_of(page) <= 2000
    assert "of 12,000 pairs are shown" in page
    assert "pairs are shown" not in make_page()


# Images


def decoded(uri: str) -> Image.Image:
    kind, data = uri.split(",")
    assert kind == "data:image/webp;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "CMYK", "I;16", "I", "F"])
def test_thumbnails_of_every_mode(tmp_path: Path, mode: str):
    ramp = np.tile(np.linspace(0, 255, 200), (100, 1))
    if mode == "I;16":
        image = Image.fromarray((ramp * 16).astype(np.uint16))
    elif mode in ("I", "F"):
        image = Image.fromarray(ramp.astype(np.int32 if mode == "I" else np.float32))
    else:
        image = Image.fromarray(ramp.astype(np.uint8)).convert("RGB").convert(mode)
    path = tmp_path / ("a.tif" if mode in ("CMYK", "F", "I") else "a.png")
    image.save(path)
    small = decoded(thumbnails([path])[str(path)])
    assert small.size == (96, 48)
    grey = np.asarray(small.convert("L"), dtype=float)
    assert grey[:, :8].mean() < 40
    assert grey[:, -8:].mean() > 215


def test_transparent_is_white_and_exif_orientation_is_respected(tmp_path: Path):
    Image.new("RGBA", (40, 40), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert np.asarray(decoded(thumbnails([tmp_path / "clear.png"]).popitem()[1])).min() > 250
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (200, 100)).save(tmp_path / "turned.jpg", exif=exif)
    assert decoded(thumbnails([tmp_path / "turned.jpg"]).popitem()[1]).size == (48, 96)


def test_an_image_that_cannot_be_shown_says_why(tmp_path: Path, monkeypatch):
    Image.new("RGB", (50, 50)).save(tmp_path / "large.png")
    noise = np.random.default_rng(0).integers(0, 255, (90, 90, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:3000])
    (tmp_path / "text.png").write_text("<svg/onload=alert(1)>")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
    words = {"none.png": "not", "text.png": "image", "large.png": "pixels", "cut.png": ""}
    found = thumbnails([*(tmp_path / name for name in words), tmp_path])
    assert len(found) == 5
    for name, word in words.items():
        kind, data = found[str(tmp_path / name)].split(",")
        assert kind == "data:image/svg+xml;base64"
        assert word in base64.b64decode(data).decode()


def test_targets_stand_below_the_images():
    pairs = make_pairs(3, 1).assign(query_image="a", key_image="b", query_target=[1.5, np.nan, 3.0], key_target="ill")
    page = make_page(pairs=pairs, thumbnails=dict.fromkeys("ab", "data:,"))
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page, re.S)
    assert [re.findall(r'<b class="label">(.*?)</b>', text) for text in captions] == [
        ["1.5"], ["ill"], [], ["ill"], ["3"], ["ill"],
    ]  # fmt: skip
    plain = make_page(
        pairs=pairs.drop(columns=["query_target", "key_target"]), thumbnails={"a": "data:,", "b": "data:,"}
    )
    assert '<b class="label">' not in plain


def test_a_page_with_two_hundred_pairs_of_images_stays_small(tmp_path: Path):
    rng = np.random.default_rng(0)
    for i in range(400):
        noise = rng.integers(0, 255, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((240, 240)).save(tmp_path / f"{i}.jpg")
    pairs = make_pairs(200, 1)
    pairs["query_image"] = [str(tmp_path / f"{i}.jpg") for i in range(200)]
    pairs["key_image"] = [str(tmp_path / f"{i}.jpg") for i in range(200, 400)]
    page = make_page(pairs=pairs, thumbnails=thumbnails(pairs[["query_image", "key_image"]].to_numpy().ravel()))
    assert len(page.encode()) < 5_000_000
    images = [attributes for tag, attributes in Tags(page).found if tag == "img"]
    assert len(images) > 100
    assert all(attributes["alt"] for attributes in images)
    assert "query_image" not in page
