"""R's formulas, as far as a matching needs them: ``treat ~ age + educ + C(race)``."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

_TERM = re.compile(r"(?:C\((?P<category>[^()]+)\)|(?P<plain>[^()*:^~+-]+))")


def parse_formula(formula: str, columns: Iterable[str]) -> tuple[str, list[str], list[str]]:
    """Return the treatment, the covariates and those of them that are categories.

    Parameters
    ----------
    formula : str
        ``treatment ~ covariate + C(category)``; ``.`` stands for all other columns. Other operators are rejected.
    columns : iterable of str
        The columns that there are.

    Examples
    --------
    >>> parse_formula("treat ~ age + C(race)", ["treat", "age", "race"])
    ('treat', ['age', 'race'], ['race'])
    """
    known = list(columns)
    left, tilde, right = formula.partition("~")
    treatment = left.strip()
    if not tilde or not treatment or not right.strip():
        raise ValueError(f"formula must be such as 'treat ~ age + C(race)', got {formula!r}")
    names: list[str] = []
    categories: list[str] = []
    for term in map(str.strip, right.split("+")):
        if term == ".":
            names += [name for name in known if name != treatment]
            continue
        found = _TERM.fullmatch(term)
        if found is None:
            raise ValueError(f"formula holds {term!r}; terms are columns, C(column) and ., joined by +")
        name = (found["category"] or found["plain"]).strip()
        names.append(name)
        categories += [name] if found["category"] else []
    for name in (treatment, *names):
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"formula names {name!r}, which is no column{hint} There are {known[:20]}")
    if treatment in names:
        raise ValueError(f"formula has {treatment!r} on both sides: the treatment is no covariate")
    return treatment, list(dict.fromkeys(names)), categories
