"""How to learn: a batch in, a loss and named figures out. No loop, no data set, no device."""

from okapi.algorithms.base import Algorithm, Needs
from okapi.algorithms.erm import ERM
from okapi.algorithms.fixmatch import FixMatch
from okapi.algorithms.offline_okapi import OfflineOkapi, offline_matches
from okapi.algorithms.okapi import Okapi, SharedDomainsWarning
from okapi.algorithms.supervised import supervised_loss

ALGORITHMS: dict[str, type[Algorithm]] = {
    "erm": ERM,
    "fixmatch": FixMatch,
    "okapi": Okapi,
    "offline_okapi": OfflineOkapi,
}

__all__ = [
    "ALGORITHMS",
    "ERM",
    "Algorithm",
    "FixMatch",
    "Needs",
    "OfflineOkapi",
    "Okapi",
    "SharedDomainsWarning",
    "offline_matches",
    "supervised_loss",
]
