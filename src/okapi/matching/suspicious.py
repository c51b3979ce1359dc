"""Columns of a table that are probably no covariates: ids, dates, codes, codes for missing values, constants."""

import re
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

MOST_LEVELS = 50  # texts with more values are codes; with fewer rows than _ROWS_A_LEVEL for each, so are _FEW_LEVELS
_FEW_LEVELS, _ROWS_A_LEVEL = 20, 20
_LEAST_ROWS = 10  # to tell an id, a code or a constant by its values
_LEAST_VALUES = 5  # by which to tell how far values spread
_NEARLY_ALL = 0.95
_EXPECTED_REPEATS = 8.0  # by chance; where there is not one for eight of them, whole numbers are given, not measured
_TEMPORAL = ("datetime", "datetime64", "date", "time", "timedelta", "timedelta64", "period")
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T].*)?|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp][Mm])?")
_SENTINEL = re.compile(r"([789])\1+|[789]")
_ID_NAME = re.compile(r"(^|_)(id|ids|uuid|guid|identifier|index|rownames?|unnamed)(_|$)")
_CODE_NAME = re.compile(r"(^|_)(zip|zipcode|postcode|postal|plz|fips|icd\d*|naics|sic|phone|code)(_|$)")


def suspicious_columns(frame: pd.DataFrame) -> dict[Any, str]:
    """Return the columns that are probably no covariates, and why, as the end of a sentence that the name begins.

    Parameters
    ----------
    frame : DataFrame
        Missing values are left out of account.

    Returns
    -------
    dict of column to str
        Columns that hold dates or times; one value; a different value in (nearly) each row, as ids do; codes that stand
        for a missing value, such as -999, far from all else; codes with many values, such as postcodes. All other
        columns are left out.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": 2 * [31, 999, 45, 18, 60], "sex": 5 * ["f", "m"], "site": 1})
    >>> for name, reason in suspicious_columns(frame).items():
    ...     print(name, reason)
    age holds 999 in 2 rows, far from all else (18 to 60): is it a code for missing?
    site holds 1 in every row
    """
    reasons = {name: _reason(str(name), column) for name, column in frame.items()}
    return {name: reason for name, reason in reasons.items() if reason}


def _reason(name: str, column: "pd.Series[Any]") -> str:
    known = column.dropna()
    if known.empty:
        return "holds no value" if len(column) else ""
    if pd.api.types.infer_dtype(known, skipna=True) in _TEMPORAL:
        return "holds dates or times"
    if pd.api.types.is_bool_dtype(known.dtype):
        return _constant_reason(known) if known.nunique() == 1 else ""
    numbers = _numbers(known)
    if numbers is None:
        text = known.astype(str)
        distinct = int(text.nunique())
        return _text_reason(text, distinct) if distinct > 1 else _constant_reason(text)
    if not len(numbers):
        return "holds no finite number"
    if len(numbers) == len(known) and numbers.min() == numbers.max():
        return _constant_reason(pd.Series(numbers).map("{:g}".format))
    tokens = re.sub(r"(?<=[a-z])(?=[A-Z])|\W+", "_", name).lower()
    return _sentinel_reason(numbers) or _number_reason(numbers, tokens)


def _constant_reason(known: "pd.Series[Any]") -> str:
    return f"holds {known.iloc[0]} in every row" if len(known) >= _LEAST_ROWS else ""


def _numbers(known: "pd.Series[Any]") -> NDArray[np.float64] | None:
    """Return a column as finite numbers, those of texts too; None of texts and of codes that begin with a 0."""
    if not pd.api.types.is_numeric_dtype(known.dtype):
        if known.astype(str).str.fullmatch(r"0\d+").any():
            return None
        known = pd.to_numeric(known.astype(object), errors="coerce")
        if known.isna().any():
            return None
    numbers = known.to_numpy(np.float64)
    return np.asarray(numbers[np.isfinite(numbers)])


def _text_reason(text: "pd.Series[str]", distinct: int) -> str:
    if text.str.fullmatch(_DATE).all():
        return "holds dates or times"
    if len(text) >= _LEAST_ROWS and distinct >= _NEARLY_ALL * len(text):
        return _as_ids(distinct, len(text))
    few_rows = distinct > _FEW_LEVELS and len(text) < _ROWS_A_LEVEL * distinct
    return f"holds {distinct:,} different texts" if distinct > MOST_LEVELS or few_rows else ""


def _sentinel_reason(numbers: NDArray[np.float64]) -> str:
    """Return what is said of numbers such as -9, 99 or -999.9 that lie further away than all others are apart."""
    rest = numbers
    for end in (np.min, np.max):
        while len(rest) and _looks_like_sentinel(float(end(rest))):
            rest = rest[rest != end(rest)]
    if not len(rest) or rest.min() == rest.max():
        return ""
    low, high = float(rest.min()), float(rest.max())
    gap = (high - low) * (1 if len(np.unique(rest)) >= _LEAST_VALUES else 3)
    far = (numbers > high + gap) | (numbers < low - gap) | ((numbers < 0) & (low >= 0))
    if not far.any():
        return ""
    named = ", ".join(f"{value:g}" for value in np.unique(numbers[far]).tolist())
    where = f"in {far.sum():,} row{'s' if far.sum() > 1 else ''}"
    return f"holds {named} {where}, far from all else ({low:g} to {high:g}): is it a code for missing?"


def _looks_like_sentinel(value: float) -> bool:
    digits = f"{abs(value):.10g}".replace(".", "")
    return bool(_SENTINEL.fullmatch(digits)) and (abs(value) >= 77 or value in (-9, -8, -7))


def _number_reason(numbers: NDArray[np.float64], tokens: str) -> str:
    if len(numbers) < _LEAST_ROWS or (numbers != np.rint(numbers)).any() or np.abs(numbers).max() > 2**53:
        return ""
    if _are_days(numbers):
        return "holds dates, as year, month and day"
    distinct = len(np.unique(numbers))
    mostly_distinct = distinct >= len(numbers) * (0.5 if distinct > _FEW_LEVELS else _NEARLY_ALL)
    if _are_numbered(numbers, distinct) or (mostly_distinct and _ID_NAME.search(tokens)):
        return _as_ids(distinct, len(numbers))
    if distinct > _FEW_LEVELS and (_CODE_NAME.search(tokens) or _are_codes(numbers, distinct)):
        return f"holds {distinct:,} different codes, whose order and distance mean nothing"
    return ""


def _are_days(numbers: NDArray[np.float64]) -> bool:
    """Return whether numbers are days such as 20240131."""
    if numbers.min() < 19000101 or numbers.max() > 21001231:
        return False
    day, month = numbers % 100, numbers // 100 % 100
    return bool(((day >= 1) & (day <= 31) & (month >= 1) & (month <= 12)).all())


def _are_numbered(numbers: NDArray[np.float64], distinct: int) -> bool:
    """Return whether whole numbers (nearly) all differ where by chance many would be the same.

    Of n that are drawn from a range of R, n (n - 1) / 2 R pairs are the same on average, or more if some are likelier.
    """
    n, span = len(numbers), float(np.ptp(numbers)) + 1
    expected = n * (n - 1) / 2 / span
    if distinct < _NEARLY_ALL * n:
        return False
    counts = np.unique(numbers, return_counts=True)[1].astype(np.float64)
    same = float((counts * (counts - 1)).sum()) / 2
    long = distinct == n and numbers.min() >= 10**6 and _one_length(numbers)  # no chance to repeat, but as long
    return bool(expected >= _EXPECTED_REPEATS and same <= expected / _EXPECTED_REPEATS - 1) or bool(
        long and not _rounded(numbers)
    )


def _are_codes(numbers: NDArray[np.float64], distinct: int) -> bool:
    """Return whether numbers of four digits or more, of one length, are repeated as quantities would not be."""
    span = float(np.ptp(numbers)) + 1
    expected = span * -np.expm1(len(numbers) * np.log1p(-1 / span))  # different ones, if all are as likely
    return bool(numbers.min() >= 1000 and distinct < expected / 2) and _one_length(numbers) and not _rounded(numbers)


def _one_length(numbers: NDArray[np.float64]) -> bool:
    return numbers.min() > 0 and len(str(int(numbers.min()))) == len(str(int(numbers.max())))


def _rounded(numbers: NDArray[np.float64]) -> bool:
    """Return whether more numbers end with 0 than by chance, as those of people and prices do."""
    return bool((numbers % 10 == 0).mean() > 0.3)


def _as_ids(distinct: int, rows: int) -> str:
    each = "each row" if distinct == rows else "nearly each row"
    return f"holds a different value in {each}, as ids do"
