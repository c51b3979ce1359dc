"""``okapi config``."""

from collections.abc import Sequence

from okapi.config import explained


def config(keys: Sequence[str] = ()) -> None:
    """Print keys of a config with their types, defaults and meanings.

    Parameters
    ----------
    keys : sequence of str
        Sections, names of sections or keys: ``training``, ``data.table``, ``algorithm.okapi.matching.k``; all by
        default.
    """
    print(explained(keys))
