"""Columns that are probably no covariates are found, and quantities are not taken for such."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from okapi.matching.suspicious import suspicious_columns

RNG = np.random.default_rng(0)
N = 600

SUSPICIOUS = {
    "numbered": (np.arange(N), "ids"),
    "shuffled": (RNG.permutation(N) + 1000, "ids"),
    "sampled": (RNG.choice(5000, N, replace=False), "ids"),
    "with_gaps": (pd.Series(np.arange(N)).where(RNG.random(N) > 0.1), "ids"),
    "nearly": (np.append(np.arange(N - 3), [5, 6, 7]), "ids"),
    "long_numbers": (RNG.choice(np.arange(10**8, 10**9, 977), N, replace=False), "ids"),
    "patient_id": (RNG.integers(0, 10**6, N), "ids"),
    "names": ([f"p{i}" for i in range(N)], "ids"),
    "day": (pd.date_range("2020-01-01", periods=N), "dates"),
    "day_text": (pd.date_range("2020-01-01", periods=N).astype(str), "dates"),
    "hour": ([f"{i % 24:02d}:{i % 60:02d}" for i in range(N)], "dates"),
    "day_number": (RNG.choice([20240131, 20240201, 20231224], N), "dates"),
    "zip": (RNG.choice(RNG.integers(10001, 99951, 80), N), "codes"),
    "area": (RNG.choice(RNG.integers(10001, 99951, 80), N), "codes"),
    "zip_text": ([f"{i:05d}" for i in RNG.choice(RNG.integers(501, 99951, 80), N)], "different texts"),
    "age_999": (np.where(RNG.random(N) < 0.05, 999, RNG.integers(18, 90, N)), "999 in"),
    "age_minus_9": (np.where(RNG.random(N) < 0.05, -9, RNG.integers(18, 90, N)), "-9 in"),
    "income_minus": (np.where(RNG.random(N) < 0.05, -999.0, RNG.lognormal(10, 1, N)), "-999 in"),
    "weather": (np.where(RNG.random(N) < 0.05, -999.9, RNG.normal(10, 8, N)), "-999.9 in"),
    "several": (RNG.choice([1, 2, 3, -99, -98, 9999], N), ""),
    "top": (np.where(RNG.random(N) < 0.05, 99999, RNG.integers(0, 40000, N)), "99999 in"),
    "constant": (np.full(N, 3), "every row"),
    "constant_text": (["a"] * N, "every row"),
    "constant_but_gaps": (pd.Series(["a"] * N).where(RNG.random(N) > 0.1), "every row"),
    "empty": (np.full(N, np.nan), "no value"),
}
HARMLESS = {
    "age": RNG.integers(18, 90, N),
    "old": np.append(RNG.integers(18, 99, N - 1), 99),
    "income": RNG.lognormal(10, 0.8, N).astype(int),
    "rounded_income": RNG.lognormal(10, 0.8, N).round(-2).astype(int),
    "salary": RNG.integers(20_000, 99_000, N),
    "price": RNG.choice([129_900, 125_000, 149_500, 200_000, 310_000], N) + RNG.choice([0, 0, 0, 1500], N),
    "re74": np.where(RNG.random(N) < 0.6, 0.0, RNG.gamma(1.5, 4000, N)),
    "re74_whole": np.where(RNG.random(N) < 0.6, 0, RNG.gamma(1.5, 4000, N).astype(int)),
    "education": RNG.integers(0, 18, N),
    "treated": RNG.integers(0, 2, N),
    "signed": RNG.choice([-1, 1], N),
    "boolean": RNG.random(N) < 0.5,
    "normal": RNG.normal(0, 1, N),
    "heavy_tails": RNG.standard_cauchy(N),
    "float32": RNG.random(N).astype(np.float32),
    "change": RNG.integers(-120, 100, N),
    "year": RNG.integers(1950, 2021, N),
    "count": RNG.poisson(2, N),
    "large_count": RNG.poisson(3000, N),
    "race": RNG.choice(["black", "hispan", "white"], N),
    "level": pd.Categorical(RNG.choice(list("abc"), N)),
    "percent": RNG.choice([88, 90, 91, 99, 100], N),
    "grams": RNG.normal(3000, 600, N).round(-1).astype(int),
    "answer": RNG.choice([f"{v}" for v in range(1, 6)], N),
    "with_gaps": pd.Series(RNG.normal(0, 1, N)).where(RNG.random(N) > 0.3),
}


@pytest.mark.parametrize("name", SUSPICIOUS)
def test_what_is_no_covariate_is_found(name: str) -> None:
    values, reason = SUSPICIOUS[name]
    found = suspicious_columns(pd.DataFrame({name: values}))
    assert list(found) == [name]
    assert reason in found[name]


@pytest.mark.parametrize("name", HARMLESS)
def test_quantities_and_categories_are_not_suspicious(name: str) -> None:
    assert suspicious_columns(pd.DataFrame({name: HARMLESS[name]})) == {}


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 2000), span=st.integers(2, 10**6), least=st.integers(0, 10**5))
@settings(max_examples=200)
def test_whole_numbers_drawn_by_chance_are_no_ids_and_no_codes(seed: int, n: int, span: int, least: int) -> None:
    values = np.random.default_rng(seed).integers(least, least + span, n)
    reason = suspicious_columns(pd.DataFrame({"x": values})).get("x", "")
    assert not reason.endswith(("as ids do", "mean nothing"))


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(20, 2000), first=st.integers(0, 10**12))
def test_whatever_numbers_the_rows_is_an_id(seed: int, n: int, first: int) -> None:
    values = np.random.default_rng(seed).permutation(n) + first
    assert "ids" in suspicious_columns(pd.DataFrame({"x": values}))["x"]


@given(seed=st.integers(0, 2**32 - 1), code=st.sampled_from([-999, -9999, -99.9, 9999, 99999]))
def test_a_sentinel_is_found_and_removing_it_is_enough(seed: int, code: float) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(40, 5, 200)
    coded = np.where(rng.random(200) < 0.1, code, values)
    coded[0] = code
    frame = pd.DataFrame({"x": coded})
    assert f"{code:g} in" in suspicious_columns(frame)["x"]
    assert suspicious_columns(frame.replace(code, np.nan)) == {}


@given(st.permutations(range(100)))
def test_the_order_of_rows_does_not_matter(order: list[int]) -> None:
    frame = pd.DataFrame({name: np.asarray(values)[:100] for name, (values, _) in SUSPICIOUS.items()})
    frame = frame.drop(columns=["constant_but_gaps", "with_gaps"])
    assert suspicious_columns(frame).keys() == suspicious_columns(frame.iloc[order]).keys()


def test_texts_of_numbers_are_read_as_numbers() -> None:
    frame = pd.DataFrame({"age": ["31", "-9", "45", "18"], "code": ["1", "2", "1", None], "odd": ["1", "x", "1", "2"]})
    assert list(suspicious_columns(frame)) == ["age"]


def test_one_row_and_none_say_nothing() -> None:
    assert suspicious_columns(pd.DataFrame({"a": [1], "b": ["x"]})) == {}
    assert suspicious_columns(pd.DataFrame({"a": []})) == {}
