"""Matches, galleries, maps and figures of a run's samples."""

import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
import torch
from tests.report.samples import ROWS, SPLIT, make_dataset, make_encoded, make_settings
from tests.training import small_data
from tests.training.small_data import Recorded

from okapi.algorithms import OkapiPlus
from okapi.commands.report import write_report
from okapi.commands.run_samples import OPEN, match_encoded, sample_rows
from okapi.config import TokenSettings
from okapi.data.text import Texts
from okapi.matching import CaliperMatcher, caliper_nn
from okapi.matching.centring import centred
from okapi.models import MLP, Network
from okapi.nn import Pool, match
from okapi.report.plots import MOST_LOOKS, to_svg
from okapi.report.run_matches import (
    OTHER,
    Matched,
    categories,
    make_gallery,
    map_section,
    matched_figures,
    principal_components,
)
from okapi.report.run_page import Looked, report_page
from okapi.report.run_records import Gathered
from okapi.training import train


def page_of(encoded) -> str:
    return report_page(Gathered((), (), ()), None, Looked(encoded, match_encoded(encoded)))


def gallery_of(encoded, **options) -> list:
    return make_gallery(encoded, match_encoded(encoded), **options)


@pytest.mark.parametrize("samples", [1, 7, 50, 130, 10_000])
def test_a_sample_is_of_open_splits_only_and_as_large_as_it_may_be(samples):
    rows = sample_rows(make_dataset(), samples, seed=3)
    assert set(SPLIT[rows]) <= set(OPEN)
    assert len(rows) == len(set(rows.tolist())) == min(samples, int(np.isin(SPLIT, list(OPEN)).sum()))
    assert np.array_equal(rows, sample_rows(make_dataset(), samples, seed=3))


def test_matches_are_those_of_the_matcher_with_the_run_s_calipers():
    scorer = {"scorer": {"temperature": 1.5}}
    encoded = make_encoded(make_dataset(), algorithm=scorer, k=2, fixed_caliper=0.9, std_caliper=0.5)
    found = match_encoded(encoded)
    assert isinstance(found, Matched)
    pool = np.isin(encoded.split, ["train", "unlabelled"])
    matcher = CaliperMatcher(k=2, fixed_caliper=0.9, std_caliper=0.5, temperature=1.5, distance="euclidean")
    expected = matcher.fit(encoded.encodings[pool], encoded.split[pool]).match()
    assert len(expected) > 20
    assert torch.equal(found.matches.query, expected.query)
    assert torch.equal(found.matches.key, expected.key)
    before, after = (found.balance.summary()[f"mean_abs_smd_{when}"] for when in ("before", "after"))
    assert after < before


def test_encodings_are_centred_where_the_run_s_are():
    none = dict.fromkeys(("fixed_caliper", "std_caliper", "prognostic_caliper"))
    encoded = make_encoded(make_dataset(), k=2, centre=True, **none)
    found = match_encoded(encoded)
    domain = torch.from_numpy((encoded.split[found.pool] == "unlabelled").astype(np.int64))
    unit = torch.from_numpy(encoded.encodings[found.pool])
    _, key = centred(unit[:0], unit, domain[:0], domain)
    expected = caliper_nn(key, key, query_domain=domain, key_domain=domain, k=2)
    assert torch.equal(found.matches.key, expected.key)
    assert found.notes == ()
    assert "centre yes" in page_of(encoded)


@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
def test_the_report_matches_as_validation_and_training_do(kind):
    """The same samples, as a run's report has them and as its algorithm makes pools of them: the same matches."""
    encoded = make_encoded(make_dataset(kind), k=2, prognostic_caliper=1.0, fixed_caliper=None, std_caliper=None)
    data, task = encoded.dataset, encoded.dataset.task
    network = Network(MLP(5, hidden=(), out_features=8), torch.nn.Linear(8, task.outputs))
    algorithm = OkapiPlus(network, task, encoded.config.algorithm, steps=1)
    pools = []
    for split in ("train", "unlabelled"):
        places = torch.from_numpy(np.flatnonzero(encoded.split == split))
        rows = torch.from_numpy(encoded.rows)[places]
        encoding, target = torch.from_numpy(encoded.encodings)[places], data.target[rows] if split == "train" else None
        pools.append(algorithm.pool(encoding, encoded.predictions[places], data.domain[rows], target))
    both = Pool(*(None if part[0] is None else torch.cat(part) for part in zip(*pools, strict=True)))
    expected = match(len(both.domain), both, algorithm.matching, kind)
    found = match_encoded(encoded)
    assert len(expected) > 10
    assert torch.equal(found.matches.query, expected.query)
    assert torch.equal(found.matches.key, expected.key)


def test_domain_labels_and_directions_are_the_run_s():
    encoded = make_encoded(
        make_dataset(), algorithm={"domain": "label"}, fixed_caliper=None, std_caliper=None, direction=[0, 3]
    )
    found = match_encoded(encoded)
    site = np.array(encoded.domains)[found.pool]
    assert set(site[found.matches.query]) == {"rome"}
    assert set(site[found.matches.key.flatten()]) == {"wien"}
    assert found.asked == 30


def test_the_prognostic_caliper_takes_labels_of_train_and_predictions_of_unlabelled_samples():
    encoded = make_encoded(
        make_dataset(),
        prognostic_caliper=0.5,
        class_prior=None,
        centre=False,
        fixed_caliper=None,
        std_caliper=None,
        k=1,
    )
    sure = 50 * torch.nn.functional.one_hot(encoded.dataset.target[torch.from_numpy(encoded.rows)], 3).float()
    found = match_encoded(replace(encoded, predictions=sure))
    assert found.precision.value == 1.0
    wrong = match_encoded(replace(encoded, predictions=sure.roll(1, 1)))  # of train it is not looked at
    assert wrong.precision.value == 0.0


def test_methods_that_match_nothing_and_empty_calipers_still_show_neighbours():
    erm = match_encoded(replace(make_encoded(make_dataset()), config=make_settings(name="erm")))
    assert "erm does not match" in erm.notes[0]
    narrow = match_encoded(make_encoded(make_dataset(), fixed_caliper=0.5000001))
    assert "without them" in narrow.notes[0]
    assert len(narrow.matches) == 120


def test_one_domain_is_a_sentence_on_a_page_with_a_map():
    split = np.where(SPLIT == "unlabelled", "train", SPLIT)
    dataset = make_dataset(split=split, domain=torch.zeros(ROWS, dtype=torch.int64), domain_names=("rome",))
    encoded = make_encoded(dataset)
    assert match_encoded(encoded) == "There is one domain only: nothing to match across."
    page = page_of(encoded)
    assert "one domain only" in page
    assert 'alt="By domain"' in page
    assert 'id="gallery"' not in page


def test_the_gallery_is_drawn_in_turn_from_domains_and_classes():
    encoded = make_encoded(make_dataset(), fixed_caliper=None, std_caliper=None)
    gallery = gallery_of(encoded, most=12)
    drawn = {(query.sample.domain, query.sample.label) for query in gallery}
    assert len(drawn) == 12
    assert gallery == gallery_of(encoded, most=12)
    for query in gallery_of(encoded):
        marks = ["right" if key.label == query.sample.label else "wrong" for key in query.keys]
        assert [key.mark for key in query.keys] == marks
        assert query.agreement == ("some wrong" if "wrong" in marks else "right")
        distances = [key.distance for key in query.keys]
        assert distances == sorted(distances)


def test_the_page_says_how_many_matches_are_of_the_same_class_in_either_direction():
    encoded = make_encoded(make_dataset(), fixed_caliper=None, std_caliper=None)
    found = match_encoded(encoded)
    target = encoded.dataset.target.numpy()[encoded.rows[found.pool]]
    same = target[found.matches.query][:, None] == target[found.matches.key]
    page = re.sub(r"\s*<[^>]+>\s*", " ", page_of(encoded))
    assert re.search(rf"Pairs with equal targets +{same.mean():.1%}; 33.3% by chance", page)
    forth = same[found.domain[found.matches.query] == 0]
    assert re.search(rf"labelled → unlabelled +{forth.size} +{forth.mean():.1%} +33.3% +unlabelled → labelled", page)
    numbers = page_of(make_encoded(make_dataset("regression")))
    assert re.search(r"\d\.\d\d standard deviations; [\d.]+, \d\.\d\d by chance", numbers)


def test_matches_without_labels_are_neither_right_nor_wrong():
    target = torch.where(torch.from_numpy(SPLIT == "unlabelled"), -1, make_dataset().target)
    encoded = make_encoded(make_dataset(target=target))
    matched = match_encoded(encoded)
    assert matched.precision.overall["unknown"] == len(matched.matches) * 3
    assert {query.agreement for query in gallery_of(encoded)} == {"not known"}
    assert "data-matches" not in page_of(encoded)


def test_texts_are_shown_as_excerpts():
    texts = Texts([f"<b>Nr {row}</b> " + "said & done " * 40 for row in range(ROWS)], TokenSettings(tokenizer=""))
    page = page_of(make_encoded(make_dataset(inputs=texts)))
    assert "&lt;b&gt;Nr " in page
    assert "<b>Nr" not in page
    shown = re.findall(r'class="excerpt">(.*?)</p>', page, re.DOTALL)
    assert all(len(unescape(text).strip()) <= 240 and text.strip().endswith("…") for text in shown)


@pytest.mark.parametrize("channels", [1, 3, 8])
def test_pictures_are_inline(channels):
    page = page_of(make_encoded(make_dataset(inputs=torch.rand(ROWS, channels, 12, 16)), k=2))
    assert len(re.findall(r'<img src="data:image/webp;base64,[^"]+" alt="(query|match) sample \d+"', page)) == 3 * 60


def test_a_picture_that_cannot_be_read_is_a_placeholder(monkeypatch):
    def broken(dataset):
        def read(row):
            raise OSError("disk on fire")

        return read

    monkeypatch.setattr("okapi.report.run_matches.image_reader", broken)
    page = page_of(make_encoded(make_dataset(inputs=torch.rand(ROWS, 3, 8, 8))))
    assert "data:image/svg+xml" in page


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_numbers_and_labels_have_pages_too(kind):
    encoded = make_encoded(make_dataset(kind))
    marked = any(key.mark for query in gallery_of(encoded) for key in query.keys)
    assert marked == (kind == "multilabel")
    assert f'alt="By {"target" if kind == "regression" else "class"}"' in page_of(encoded)


def test_sets_of_domains_have_pages_too():
    sets = torch.arange(4 * ROWS).reshape(ROWS, 4) % 7 < 3
    dataset = make_dataset(domain=sets, domain_names=("a", "b", "c", "d"))
    encoded = make_encoded(dataset, algorithm={"domain": "label"}, fixed_caliper=None, std_caliper=None, k=1)
    assert encoded.domains[1] == "|".join(np.array(list("abcd"))[sets[encoded.rows[1]].numpy()])
    matched = match_encoded(encoded)
    assert isinstance(matched, Matched)
    assert 'id="gallery"' in page_of(encoded)


def test_principal_components_are_scikit_learn_s():
    from sklearn.decomposition import PCA

    vectors = make_encoded(make_dataset()).encodings
    ours, share = principal_components(vectors)
    pca = PCA(2).fit(vectors)
    theirs = pca.transform(vectors)
    assert np.allclose(np.abs(ours), np.abs(theirs), atol=1e-5)
    assert share == pytest.approx(pca.explained_variance_ratio_.sum(), rel=1e-5)
    flat, all_of_it = principal_components(np.ones((4, 3), dtype=np.float32))
    assert not flat.any()
    assert all_of_it == 1.0


def test_domains_beyond_twelve_are_other():
    names = [f"site {number % 30}" for number in range(100)]
    groups = categories(names)
    assert len(groups) == MOST_LOOKS + 1
    assert groups[-1][0] == OTHER
    assert sorted(np.concatenate([members for _, _, members in groups])) == list(range(100))
    assert len({look for _, look, _ in groups}) == MOST_LOOKS + 1


def test_figures_show_propensities_and_balance_before_and_after_matching():
    (caption, histograms), (love, _) = matched_figures(match_encoded(make_encoded(make_dataset(), fixed_caliper=0.8)))
    assert "tells the domains apart with a balanced accuracy of" in caption
    assert "dashed: fixed caliper" in to_svg(histograms)
    assert "standardised mean differences" in love


def test_a_page_that_would_be_too_large_has_fewer_matches_and_a_map_of_some_points(monkeypatch):
    encoded = make_encoded(make_dataset(inputs=torch.rand(ROWS, 3, 96, 96)))
    whole = page_of(encoded)
    monkeypatch.setattr("okapi.report.run_page.MOST_BYTES", len(whole) // 2)
    less = page_of(encoded)
    assert len(less.encode()) < len(whole) // 2
    assert re.search(r"(\d+) of \d+ matched queries", less)[1] != re.search(r"(\d+) of \d+ matched queries", whole)[1]
    monkeypatch.setattr("okapi.report.run_matches.MOST_POINTS", 50)
    assert "Encodings of 50 samples of 160 that were encoded" in map_section(encoded).about


def test_classes_are_called_by_their_names_and_unknown_ones_by_none():
    dataset = make_dataset(target=torch.where(torch.arange(ROWS) == 0, -1, torch.arange(ROWS) % 3))
    rows = np.arange(5)
    assert replace(make_encoded(dataset), rows=rows).labels[:3] == [None, "bee", "cow"]
    assert replace(make_encoded(make_dataset("multilabel")), rows=rows).labels[4] == "none"
    assert replace(make_encoded(make_dataset("regression")), rows=rows).labels[0] == "-1"


def test_no_sample_of_a_test_split_is_read(tmp_path, monkeypatch):
    inputs = Recorded(torch.randn(small_data.ROWS, 5))
    small_data.register(monkeypatch, inputs=inputs)
    train(small_data.config({"name": "okapi", "matching": {"k": 1}, "bank": 16, "domain": "label"}), tmp_path / "run")
    inputs.read.clear()
    write_report([tmp_path / "run"], tmp_path / "report.html")
    assert len(set(inputs.read)) > 10
    assert not set(inputs.read) & small_data.TEST_ROWS
    assert 'id="map"' in (tmp_path / "report.html").read_text()
