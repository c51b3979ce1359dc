"""The command line as a user meets it: real files, the real executable, a real browser."""

import base64
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from tests.data.test_tables import sparse_npz

from okapi.cli import main
from okapi.data import read_table
from okapi.matching import CaliperMatcher
from okapi.matching.diagnostics.tuning import tune

OKAPI = str(Path(sys.executable).with_name("okapi"))
LONG = "a hospital whose name is much longer than any column of a terminal that is eighty characters wide"


def samples(n: int = 240, domains: int = 2, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    site = np.arange(n) % domains
    frame = pd.DataFrame(rng.normal(size=(n, 3)) + 0.5 * site[:, None], columns=["age", "dose", "weight"])
    frame["ward"] = np.array(["a", "b"])[np.arange(n) // 2 % 2]
    return frame.assign(name=[f"p{i:04d}" for i in range(n)], site=np.array(["north", "south", "west"])[site])


def okapi(*words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run([OKAPI, *map(str, words)], capture_output=True, text=True, check=check, timeout=120)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# Matches are those of CaliperMatcher


def test_csv_with_ids_exact_columns_and_a_target(tmp_path, capsys):
    frame = samples().assign(outcome=lambda x: np.where(x.age > 0, "high", "low"))
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = "--id name --exact ward --k 3 --fixed-caliper 0.9 --std-caliper 0.5 --caliper-scale logit --temperature 1.2"
    words += " --estimand att --allow-fewer --target outcome --distance mahalanobis --caliper-sd all --one-way"
    files_ = [str(tmp_path / "t.csv"), "--out", str(tmp_path / "m.csv")]
    assert main(["match", *files_, "--treatment", "site", "--treated", "south", *words.split()]) == 0
    out = capsys.readouterr().out
    matcher = CaliperMatcher(
        k=3, fixed_caliper=0.9, std_caliper=0.5, caliper_scale="logit", temperature=1.2, exact=["ward"],
        estimand="att", allow_fewer=True, distance="mahalanobis", caliper_sd="all", two_way=False,
    ).fit(frame.set_index("name")[["age", "dose", "weight", "ward"]], frame.site, treated="south")  # fmt: skip
    expected = matcher.to_frame()
    written = pd.read_csv(tmp_path / "m.csv")
    assert list(written) == ["query", "rank", "key", "distance"]
    pd.testing.assert_frame_equal(written, expected, check_dtype=False)
    outcome = frame.set_index("name").outcome
    equal = (outcome[expected["query"]].to_numpy() == outcome[expected["key"]].to_numpy()).mean()
    assert f"Pairs with equal targets: {equal:.1%}; " in out
    precision = matcher.precision(frame.outcome, kind="classification").table.iloc[0]
    cells = rf"{int(precision.pairs)} +{precision.precision:.1%} +{precision.chance:.1%}"
    assert re.search(rf"south → north +{cells}\n", out)
    assert "240 samples of 2 domains, 3 covariates" in out
    assert "north (120), south (120)" in out
    assert f"matched, k = 3{' ' * 4}" in out
    assert "SMD denominator: pooled deviation before matching" in out
    for number in matcher.removed()["pairs"]:
        assert f"{number:,}" in out


def test_prognostic_caliper_and_a_target_of_numbers(tmp_path, capsys):
    rng = np.random.default_rng(2)
    frame = samples().assign(risk=lambda x: 10 * x.age + rng.normal(size=240), cost=lambda x: 3 * x.age)
    frame.loc[0, "cost"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = ["--exact", "ward", "--target", "cost", "--prognostic", "risk", "--prognostic-caliper", "0.1", "--k", "2"]
    files_ = ["--out", str(tmp_path / "m.csv"), "--report", str(tmp_path / "m.html")]
    assert main(["match", str(tmp_path / "t.csv"), "--domain", "site", *words, *files_]) == 0
    matcher = CaliperMatcher(k=2, exact=["ward"], prognostic_caliper=0.1)
    matcher.fit(frame[["age", "dose", "weight", "ward"]], frame.site, prognosis=frame.risk)
    expected = matcher.to_frame()
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "m.csv"), expected, check_dtype=False)
    out, page = capsys.readouterr().out, (tmp_path / "m.html").read_text(encoding="utf-8")
    pairs = matcher.removed().set_index("rule")["pairs"]["prognostic caliper 0.1"]
    assert re.search(
        rf"prognostic caliper 0.1 +distance of prognoses <= 0.1 \(standard deviations\) .* {pairs:,}\n", out
    )
    apart = np.abs(frame.cost[expected["query"]].to_numpy() - frame.cost[expected["key"]].to_numpy())
    known = f" of the {np.isfinite(apart).sum():,} pairs where both are known"
    deviation = np.nanstd(frame.cost)
    line = f"{np.nanmean(apart):.4g}, {np.nanmean(apart) / deviation:.2f} standard deviations{known}; "
    assert f"Mean difference of the target in pairs: {line}" in out
    assert "|difference|  in SD  by chance" in out
    for text in ("prognostic caliper 0.1", "target difference", "in deviations by chance"):
        assert text in page


def test_an_outcome_without_a_caliper_has_the_automatic_one(tmp_path, capsys):
    frame = samples().assign(risk=lambda x: 10 * x.age)
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = ["--columns", "dose", "weight", "--prognostic", "risk", "--k", "2", "--out", str(tmp_path / "m.csv")]
    assert main(["match", str(tmp_path / "t.csv"), "--domain", "site", *words]) == 0
    assert re.search(
        r"prognostic caliper auto +distance of prognoses <= 0\.333\d* \(standard dev", capsys.readouterr().out
    )
    expected = CaliperMatcher(k=2, prognostic_caliper=1 / 3)
    expected.fit(frame[["dose", "weight"]], frame.site, prognosis=frame.risk)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "m.csv"), expected.to_frame(), check_dtype=False)


def test_classes_and_probabilities_are_outcomes_too(tmp_path, capsys):
    rng = np.random.default_rng(3)
    frame = samples().assign(grade=np.arange(240) % 3, p0=rng.random(240), p1=rng.random(240))
    frame.to_csv(tmp_path / "t.csv", index=False)
    columns = ["age", "dose", "weight"]
    for outcome, given in (("grade", frame.grade.astype(str)), ("p0 p1", frame[["p0", "p1"]].to_numpy())):
        words = ["--columns", *columns, "--prognostic", *outcome.split(), "--prognostic-caliper", "0.3"]
        assert (
            main(["match", str(tmp_path / "t.csv"), "--domain", "site", *words, "--out", str(tmp_path / "m.csv")]) == 0
        )
        expected = CaliperMatcher(prognostic_caliper=0.3).fit(frame[columns], frame.site, prognosis=given).to_frame()
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "m.csv"), expected, check_dtype=False)
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--prognostic-caliper 1", "prognostic.caliper needs columns of a prognostic score, got none for 1.0"),
        ("--prognostic-caliper -1 --prognostic age", "prognostic.caliper must be a number of at least 0, got -1"),
        ("--prognostic age --columns age dose --prognostic-caliper 1", r"--columns names 'age', a prognostic score"),
        ("--prognostic height --prognostic-caliper 1", "t.csv has no column 'height'"),
        (
            "--columns dose --prognostic age ward --prognostic-caliper 1",
            "t.csv: row 1, column 'ward' is 'a'; several columns of a prognostic score",
        ),
        ("--prognostic gap --prognostic-caliper 1", "t.csv: row 3, column 'gap' is missing"),
        ("--columns age --target endless", "t.csv: row 3, the target is not a finite number"),
    ],
)
def test_bad_outcomes_are_named_and_nothing_is_written(tmp_path, capsys, words, message):
    third = np.arange(240) == 2
    frame = samples().assign(gap=np.where(third, np.nan, 1.5), endless=lambda x: np.where(third, np.inf, x.age))
    frame.to_csv(tmp_path / "t.csv", index=False)
    code = main(
        ["match", str(tmp_path / "t.csv"), "--domain", "site", *words.split(), "--out", str(tmp_path / "m.csv")]
    )
    assert code != 0
    assert re.search(message, capsys.readouterr().err)
    assert files(tmp_path) == {"t.csv"}


def test_parquet_with_lists_and_three_domains(tmp_path, capsys):
    frame = samples(domains=3)
    X = frame[["age", "dose", "weight"]].to_numpy(np.float32)
    pd.DataFrame({"e": list(X), "site": frame.site, "note": frame.name}).to_parquet(tmp_path / "t.parquet")
    words = ["--domain", "site", "--no-replace", "--order", "closest", "--out", str(tmp_path / "m.parquet")]
    assert main(["match", str(tmp_path / "t.parquet"), *words]) == 0
    expected = CaliperMatcher(replace=False, order="closest", embeddings=True).fit(X, frame.site).to_frame()
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "m.parquet"), expected)
    assert "Columns left out: note" in capsys.readouterr().out
    assert files(tmp_path) == {"t.parquet", "m.parquet"}


def test_npz_with_given_propensities_prints_without_writing(tmp_path, capsys):
    frame = samples()
    scores = np.random.default_rng(1).uniform(0.05, 0.95, len(frame))
    np.savez(tmp_path / "t.npz", X=frame[["age", "dose"]].to_numpy(), site=frame.site.to_numpy(str), p=scores)
    assert (
        main(["match", str(tmp_path / "t.npz"), "--domain", "site", "--propensity", "p", "--std-caliper", "0.1"]) == 0
    )
    matcher = CaliperMatcher(std_caliper=0.1)
    matcher.fit(frame[["age", "dose"]].to_numpy(), frame.site, propensity_scores=scores)
    assert f"Queries matched: {len(matcher.match())} of 240" in capsys.readouterr().out
    assert files(tmp_path) == {"t.npz"}


def test_centred_vectors_as_the_matcher_centres_them_and_the_report_says_so(tmp_path, capsys):
    frame = samples(domains=3)
    X = frame[["age", "dose", "weight"]].to_numpy()
    np.savez(tmp_path / "t.npz", X=X, site=frame.site.to_numpy(str))
    words = ["--domain", "site", "--centre", "--distance", "cosine", "--k", "2"]
    files_ = ["--out", str(tmp_path / "m.csv"), "--report", str(tmp_path / "m.html")]
    assert main(["match", str(tmp_path / "t.npz"), *words, *files_]) == 0
    expected = CaliperMatcher(k=2, distance="cosine", centre=True).fit(X, frame.site).to_frame()
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "m.csv"), expected, check_dtype=False)
    note = "Vectors were centred by the mean of their domain before the distance"
    assert note in capsys.readouterr().out
    assert note in (tmp_path / "m.html").read_text(encoding="utf-8")


def test_nothing_is_cut_where_the_output_is_a_file(tmp_path):
    frame = samples().replace({"north": f"{LONG} 1", "south": f"{LONG} 2"})
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = ["--domain", "site", "--columns", "age", "dose", "--std-caliper", "0.2", "--out", tmp_path / "m.csv"]
    found = okapi("match", tmp_path / "t.csv", *words)
    expected = CaliperMatcher(std_caliper=0.2).fit(frame[["age", "dose"]], frame.site).to_frame()
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "m.csv"), expected, check_dtype=False)
    assert found.stdout.count(f"{LONG} 1 → {LONG} 2") >= 3
    assert "\x1b" not in found.stdout
    assert "…" not in found.stdout


def test_separable_domains_are_a_note_and_no_matches_are_no_error(tmp_path, capsys):
    frame = samples()
    frame["age"] += 50 * (frame.site == "south")
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = ["--domain", "site", "--columns", "age", "dose", "--fixed-caliper", "0.9", "--out", str(tmp_path / "m.csv")]
    assert main(["match", str(tmp_path / "t.csv"), *words, "--report", str(tmp_path / "m.html")]) == 0
    out, errors = capsys.readouterr()
    assert "Note: The domains are separable" in out
    assert "--fixed-caliper of 0.9 keeps 0.0%" in out
    assert "Warning" not in errors
    assert "Nothing was matched" in out
    assert list(pd.read_csv(tmp_path / "m.csv")) == ["query", "rank", "key", "distance"]
    assert "Nothing was matched" in (tmp_path / "m.html").read_text(encoding="utf-8")


def test_missing_images_are_a_note(tmp_path, capsys):
    frame = samples(n=60).assign(picture=[f"{i}.png" for i in range(60)])
    for path in frame.picture[5:]:
        Image.new("RGB", (4, 4)).save(tmp_path / path)
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert main(["match", str(tmp_path / "t.csv"), "--domain", "site", "--id", "name", "--image", "picture"]) == 0
    assert f"Note: 5 of 60 images are missing, the first is {tmp_path / '0.png'}" in capsys.readouterr().out


# Effects


def trial(n: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    arm = np.where(rng.random(n) < 0.4, "drug", "placebo")
    frame = pd.DataFrame(rng.normal(size=(n, 2)) + 0.3 * (arm == "drug")[:, None], columns=["age", "dose"]).round(3)
    frame = frame.assign(arm=arm, patient=np.arange(n) + 5000, zip=rng.choice(np.arange(10_000, 99_999), n))
    return frame.assign(score=lambda x: (x.age + 847 * (x.arm == "drug") + rng.normal(size=n)).round(2))


def test_the_effect_is_printed_first_and_is_treated_minus_control(tmp_path, capsys):
    frame = trial()
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = ["match", str(tmp_path / "t.csv"), "--treatment", "arm", "--effect", "score"]
    for treated, sign in (("drug", 1), ("placebo", -1)):
        assert main([*words, "--treated", treated, "--report", str(tmp_path / "m.html")]) == 0
        out = capsys.readouterr().out
        other = {"drug": "placebo", "placebo": "drug"}[treated]
        found = CaliperMatcher().fit(frame[["age", "dose"]], frame.arm, treated=treated).effect(frame.score)
        assert sign * found.estimate == pytest.approx(847, abs=1)
        line = (
            f"Effect, {treated} minus {other} (ATT, mean difference): {found.estimate:.4g}, standard error "
            f"{found.standard_error:.4g}, 95 % interval {found.ci_low:.4g} to {found.ci_high:.4g}; "
        )
        assert out.startswith(
            f"{line}{found.n_matched} of {found.n} treated matched\nMatching: the treated ({treated})"
        )
        assert "distance: propensity, the default here" in out.splitlines()[1]
        assert "Left out as probably no covariates: 'patient' holds" in out
        assert "'zip' holds" in out
        assert "Covariates: age, dose\n" in out
        page = (tmp_path / "m.html").read_text(encoding="utf-8")
        places = [
            page.index(f'<section id="{name}"') for name in ("effect", "removed", "table-one", "figures", "pairs")
        ]
        assert places == sorted(places)
        assert f"<dd>{found.estimate:.4g}</dd>" in page


@pytest.mark.parametrize("method", ["optimal", "full", "cem", "subclass"])
def test_methods_write_their_matches_and_table_one(method, tmp_path, capsys):
    frame = trial().assign(ward=lambda x: x.patient % 5)
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = ["match", str(tmp_path / "t.csv"), "--treatment", "arm", "--treated", "drug", "--effect", "score"]
    words += ["--columns", "age", "dose", "--method", method]
    paired = method in ("optimal", "full")
    words += ["--covariate-calipers", "age=1", "--anti-exact", "ward"] if paired else []
    files_ = {name: str(tmp_path / f"{name}.csv") for name in ("out", "table-one")} | {
        "report": str(tmp_path / "m.html")
    }
    assert main([*words, *(part for name, path in files_.items() for part in (f"--{name}", path))]) == 0
    settings = {"covariate_calipers": {"age": 1}, "anti_exact": ["ward"]} if paired else {}
    X = frame[["age", "dose", *(["ward"] if paired else [])]]
    matcher = CaliperMatcher(method=method, **settings).fit(X, frame.arm, treated="drug")
    assert capsys.readouterr().out.startswith(
        f"Effect, drug minus placebo (ATT, mean difference): {matcher.effect(frame.score).estimate:.4g}"
    )
    pd.testing.assert_frame_equal(pd.read_csv(files_["out"]), matcher.to_frame(), check_dtype=False)
    pd.testing.assert_frame_equal(pd.read_csv(files_["table-one"]), matcher.table_one(), check_dtype=False)


def test_missing_covariates_are_counted_and_dropped_or_imputed(tmp_path, capsys):
    frame = trial().assign(sex=lambda x: np.where(x.patient % 3 == 0, "f", "m"))
    frame.loc[:9, "age"], frame.loc[5:20, "sex"] = np.nan, np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = ["match", str(tmp_path / "t.csv"), "--treatment", "arm", "--treated", "drug", "--effect", "score"]
    words += ["--columns", "age", "dose", "sex"]
    assert main(words) == 2
    assert "t.csv: row 1, column 'age' is missing" in capsys.readouterr().err
    complete = frame[["age", "dose", "sex"]].notna().all(axis=1)
    filled = frame[["age", "dose", "sex"]].assign(a=frame.age.isna() * 1.0, s=frame.sex.isna() * 1.0)
    filled["age"], filled["sex"] = frame.age.fillna(frame.age.median()), frame.sex.fillna("m")
    for missing, rows, X in (("drop", complete, frame[["age", "dose", "sex"]]), ("impute", complete | True, filled)):
        assert main([*words, "--missing", missing]) == 0
        out = capsys.readouterr().out
        assert "Missing values: 10 in age, 16 in sex; " in out
        assert ("21 rows of 300 left out." in out) == (missing == "drop")
        found = CaliperMatcher().fit(X[rows], frame.arm[rows], treated="drug").effect(frame.score[rows])
        assert f": {found.estimate:.4g}, standard error {found.standard_error:.4g}" in out.splitlines()[0]


def test_a_matching_that_says_little_says_so(tmp_path, capsys):
    frame = trial().assign(age=lambda x: x.age + 9 * (x.arm == "drug"))
    frame.loc[frame.index[frame.arm == "placebo"][0], "age"] = 20
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = ["match", str(tmp_path / "t.csv"), "--treatment", "arm", "--treated", "drug", "--columns", "age"]
    assert main([*words, "--distance", "scaled_euclidean"]) == 0
    assert "serves most of the" in capsys.readouterr().out
    few = [*words, "dose", "--distance", "mahalanobis", "--std-caliper", "0.0001"]
    assert main(few) == 0
    assert re.search(r"queries were matched|nothing was matched", capsys.readouterr().out, re.IGNORECASE)


# The page


@pytest.mark.browser
def test_the_page_sorts_filters_and_shows_pictures(tmp_path, browser):
    frame = samples(n=60, domains=3).assign(picture=[f"pictures/{i}.png" for i in range(60)])
    (tmp_path / "pictures").mkdir()
    for i, path in enumerate(frame.picture):
        Image.new("RGB", (24, 24), (4 * i, 90, 120)).save(tmp_path / path)
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = "--domain site --id name --image picture --k 2 --fixed-caliper 0.95 --columns age dose weight"
    assert main(["match", str(tmp_path / "t.csv"), *words.split(), "--report", str(tmp_path / "page.html")]) == 0
    expected = CaliperMatcher(k=2, fixed_caliper=0.95).fit(
        frame.set_index("name")[["age", "dose", "weight"]], frame.site
    )
    pairs = expected.to_frame()

    page = browser.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto((tmp_path / "page.html").as_uri())
    shown = page.locator("#pairs output")
    assert shown.inner_text() == f"{len(pairs)} rows"
    page.locator("#pairs").get_by_role("button", name="distance").click()
    distances = list(map(float, page.locator("#pairs-table tbody td:nth-child(4)").all_inner_texts()))
    assert distances == sorted(distances)
    assert distances[0] == pytest.approx(pairs.distance.min(), abs=0.01)
    page.locator("#pairs").get_by_label("Search").fill("west")
    west = frame.name[frame.site == "west"]
    of_west = (pairs["query"].isin(west) | pairs["key"].isin(west)).sum()
    assert shown.inner_text() == f"{of_west} of {len(pairs)} rows"
    image = page.locator(".gallery img").first
    image.scroll_into_view_if_needed()
    image.evaluate("image => image.decode()")
    assert image.evaluate("image => image.naturalWidth") == 24
    assert page.locator('.gallery img[src^="data:image/svg"]').count() == 0  # which would say that a file is missing
    assert page.locator('#figures img[src^="data:image/svg"]').count() == 3
    assert page.locator("#balance-pairs mark").count() > 0
    page.close()
    assert troubles == []


# What is rejected: exit code 2, one paragraph that names the file or the option, nothing written


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """Return a folder of good and bad tables."""
    folder = tmp_path_factory.mktemp("inputs")
    frame = samples(n=40).drop(columns="ward")
    frame.to_csv(folder / "good.csv", index=False)
    frame.to_parquet(folder / "cut.parquet")
    (folder / "cut.parquet").write_bytes((folder / "cut.parquet").read_bytes()[:-300])
    (folder / "empty.csv").write_text("")
    frame.assign(site="north").to_csv(folder / "one.csv", index=False)
    frame.assign(age=frame.age.where(frame.index != 6)).to_parquet(folder / "nan.parquet")
    scored = frame.assign(p=0.5, high=1.5)
    scored.loc[3, "p"] = np.nan
    scored.to_parquet(folder / "scores.parquet")
    frame.assign(same=7.0, twice=2 * frame.age).to_csv(folder / "flat.csv", index=False)
    sparse_npz(folder / "huge.npz", rows=10_000_000, width=256)
    sparse_npz(folder / "larger.npz", rows=3_000_000, width=100_000)  # 1.2 TB
    return folder


REJECTED = {
    "good.csv --domain sites": r"good\.csv has no column 'sites'; did you mean site\?",
    "good.csv --domain site --columns agee": "has no column 'agee'; did you mean age?",
    "good.csv --domain site --columns age --exact age": "--exact and columns both name",
    "good.csv --domain site --exact site": "--exact names the domain, 'site'",
    "missing.csv --domain site": r"missing\.csv does not exist",
    "cut.parquet --domain site": r"cut\.parquet cannot be read",
    "empty.csv --domain site": r"empty\.csv is empty",
    "one.csv --domain site": r"one\.csv: every row of 'site' is 'north'",
    "nan.parquet --domain site": r"nan\.parquet: row 7, column 'age' is missing",
    "scores.parquet --domain site --columns age --propensity p --std-caliper 1": r"row 4, column 'p' is missing",
    "scores.parquet --domain site --columns age --propensity high --std-caliper 1": r"--propensity must lie in",
    "good.csv --domain site --fixed-caliper 0.5": "--fixed-caliper must be in .* and not 0.5",
    "good.csv --domain site --fixed-caliper 1.7": r"--fixed-caliper must be in \[0, 1\] and not 0.5, got 1.7",
    "good.csv --domain site --std-caliper 0": "--std-caliper must be a positive number, got 0.0",
    "good.csv --domain site --std-caliper -1": "--std-caliper must be a positive number, got -1.0",
    "good.csv --domain site --temperature 0": "--temperature must be a positive number",
    "good.csv --domain site --k 0": "--k must be a whole number of at least 1, got 0",
    "good.csv --domain site --k 1.5": "--k must be a whole number, got '1.5'",
    "good.csv --domain site --distance euclid": "--distance must be one of .*'mahalanobis', .*, got 'euclid'",
    "good.csv --domain site --std-calliper 1": r"unknown option --std-calliper; did you mean --std-caliper\?",
    "good.csv --domain site --nonsense": r"unknown option --nonsense\. See okapi match --help",
    "good.csv": "--domain or treatment must be given, the column that says where a sample belongs; got neither",
    "good.csv --domain site --treatment site": "--domain or treatment must be given, .*; got both",
    "good.csv --treatment site": "treated must be named: which of 'north', 'south' of 'site' is it",
    "good.csv --treatment site --treated east": "treated must be one of 'north', 'south' of 'site', got 'east'",
    "one.csv --treatment site --treated north": r"one\.csv: every row of 'site' is 'north'",
    "good.csv --domain site --treated north": "--treated needs treatment",
    "good.csv --domain site --effect age": "--effect needs treatment",
    "good.csv --treatment site --treated north --effect age --columns age dose": "--columns names 'age'.* no covariate",
    "good.csv --treatment site --treated north --effect age --prognostic age": "--prognostic names 'age', the outcome",
    "good.csv --treatment site --treated north --effect heightt": "has no column 'heightt'",
    "good.csv --treatment site --treated north --effect name": "column 'name', outcome must be numbers, or yes and no",
    "good.csv --domain site --k 100000": "--k must be at most 20, the number of samples that a query may be matched to",
    "nan.parquet --domain site --missing mean": "--missing must be one of 'error', 'drop', 'impute', got 'mean'",
    "flat.csv --domain site --columns age same --distance mahalanobis": "'same' is constant",
    "flat.csv --domain site --columns age twice --distance mahalanobis": "linearly independent",
    "larger.npz --domain site": r"larger\.npz needs about 1200.0 GB of memory to be matched, .* GB are available",
    "larger.npz --domain site --std-caliper 1": "fewer columns or rows, or store float32, or give known propensities",
    "huge.npz --domain sitee": r"huge\.npz has no column 'sitee'",
    "huge.npz --domain site --fixed-caliper 2": "--fixed-caliper",
    "huge.npz --domain site --centre --distance mahalanobis": r"--centre needs one of the distances \('euclidean', ",
    "huge.npz --domain site --estimand att": "--estimand='att' needs treatment in place of domain",
}


@pytest.mark.parametrize("words", REJECTED)
def test_bad_input_is_named_and_nothing_is_written(inputs, tmp_path, capsys, words):
    name, *options = words.split()
    outputs = ["--out", str(tmp_path / "m.csv"), "--report", str(tmp_path / "m.html")]
    begun = time.monotonic()
    try:
        code = main(["match", str(inputs / name), *options, *outputs])
    except SystemExit as stopped:
        code = stopped.code
    assert time.monotonic() - begun < 5
    out, errors = capsys.readouterr()
    message = errors.splitlines()[-1]
    assert (code, out) == (2, "")
    assert message.startswith("okapi")
    assert re.search(REJECTED[words], message)
    assert "Traceback" not in errors
    assert files(tmp_path) == set()


def test_bad_outputs_are_rejected_before_the_table_is_read(inputs, tmp_path, capsys):
    good = str(inputs / "good.csv")
    (tmp_path / "same.csv").hardlink_to(good)
    for option, path, words in (
        ("--out", tmp_path / "same.csv", "is the table that is read"),
        ("--report", Path("/proc/m.html"), "/proc/m.html cannot be written: No such file or directory"),
        ("--out", tmp_path / "no" / "m.csv", "does not exist"),
        ("--out", tmp_path / "m.xlsx", "cannot write '.xlsx'"),
        ("--out", good, "is the table that is read"),
        ("--report", tmp_path / "m.pdf", "cannot write '.pdf'"),
    ):
        assert main(["match", good, "--domain", "site", option, str(path)]) == 2
        errors = capsys.readouterr().err
        assert words in errors
        assert "Reading" not in errors


def test_the_executable_rejects_likewise(inputs, tmp_path):
    found = okapi("match", inputs / "good.csv", "--domain", "site", "--std-calliper", 1, check=False)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == (
        "okapi match: unknown option --std-calliper; did you mean --std-caliper? See okapi match --help\n"
    )
    assert okapi("mtch", check=False).stderr == "okapi: unknown command 'mtch'; did you mean match? See okapi --help\n"


def test_ctrl_c_leaves_no_file(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "t.npz", X=rng.normal(size=(120_000, 64)).astype(np.float32), site=np.arange(120_000) % 3)
    words = [OKAPI, "match", tmp_path / "t.npz", "--domain", "site", "--k", "5", "--out", tmp_path / "m.parquet"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*words, "--report", tmp_path / "m.html"], **streams) as process:
        while "Matching" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(1)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=30)
    assert (process.returncode, out, errors) == (130, "", "okapi: stopped\n")
    assert files(tmp_path) == {"t.npz"}


# Tuning


def test_tune_prints_the_table_and_a_command_that_works(tmp_path, capsys):
    frame = samples().assign(p=np.random.default_rng(2).uniform(0.05, 0.95, 240))
    frame.to_csv(tmp_path / "t.csv", index=False)
    grid = {"fixed_caliper": [None, 0.9], "std_caliper": [None, 0.2], "temperature": [1.0], "k": [1, 2]}
    options = ["--fixed-caliper", "none", "0.9", "--std-caliper", "none", "0.2", "--temperature", "1", "--k", "1", "2"]
    shared = [
        "--treatment",
        "site",
        "--treated",
        "south",
        "--id",
        "name",
        "--columns",
        "age",
        "dose",
        "--estimand",
        "atc",
        "--no-replace",
    ]
    shared += ["--exact", "ward", "--propensity", "p", "--centre"]
    written = ["--out", str(tmp_path / "g.csv"), "--report", str(tmp_path / "g.html")]
    assert main(["tune", str(tmp_path / "t.csv"), *shared, *options, *written]) == 0
    out = capsys.readouterr().out
    matcher = CaliperMatcher(estimand="atc", replace=False, exact=["ward"], centre=True)
    tuning = tune(
        frame[["age", "dose", "ward"]], frame.site, treated="south", **grid, matcher=matcher, propensity_scores=frame.p
    )
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "g.csv"), tuning.table)
    rows = re.findall(r"^(\*| ) +(?:none|0\.9) .*(?:%|–)$", out, re.MULTILINE)
    assert [mark == "*" for mark in rows] == tuning.table.pareto.tolist()
    page = (tmp_path / "g.html").read_text(encoding="utf-8")
    drawn = [base64.b64decode(text).decode() for text in re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", page)]
    assert any("mean |SMD| after matching" in svg for svg in drawn)
    command = shlex.split(out.strip().splitlines()[-1])
    assert command[:2] == ["okapi", "match"]
    assert {"--no-replace", "--propensity", "--exact", "--id", "--estimand", "--centre"} < set(command)
    assert main([*command[1:], "--out", str(tmp_path / "m.csv")]) == 0
    assert len(set(pd.read_csv(tmp_path / "m.csv")["query"])) == tuning.table.matched_queries[0]


def test_tune_rejects_bad_grids(tmp_path, capsys):
    samples().to_csv(tmp_path / "t.csv", index=False)
    for options, words in (
        (["--std-caliper", "0.1", "0"], "--std-caliper must be a positive number"),
        (["--fixed-caliper", "0.5"], "--fixed-caliper must be in"),
        (["--k", "0"], "--k must be"),
        (["--jobs", "0"], "--jobs must be"),
        (["--centre", "--distance", "propensity"], "--centre needs one of the distances"),
    ):
        assert main(["tune", str(tmp_path / "t.csv"), "--domain", "site", *options]) == 2
        assert words in capsys.readouterr().err


def test_target_is_no_covariate(tmp_path):
    samples().assign(y=1.5).to_csv(tmp_path / "t.csv", index=False)
    table = read_table(tmp_path / "t.csv", domain="site", target="y", id="name")
    assert "y" not in table.names
    assert table.target.tolist() == [1.5] * 240
