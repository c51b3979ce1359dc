"""How to learn: a batch in, a loss and metrics out. No loop, no data set, no device."""

from okapi.algorithms.base import Algorithm, Needs
from okapi.algorithms.coral import CORAL
from okapi.algorithms.cross_domain import SharedDomainsWarning
from okapi.algorithms.dann import DANN
from okapi.algorithms.erm import ERM
from okapi.algorithms.fixmatch import FixMatch
from okapi.algorithms.offline_okapi import OfflineOkapi, offline_matches
from okapi.algorithms.okapi import Okapi
from okapi.algorithms.okapi_plus import OkapiPlus
from okapi.algorithms.supervised import supervised_loss
from okapi.config import PAPER

ALGORITHMS: dict[str, type[Algorithm]] = {
    "erm": ERM,
    "fixmatch": FixMatch,
    "coral": CORAL,
    "dann": DANN,
    "okapi": Okapi,
    "okapi_plus": OkapiPlus,
    "offline_okapi": OfflineOkapi,
}

__all__ = [
    "ALGORITHMS",
    "CORAL",
    "DANN",
    "ERM",
    "PAPER",
    "Algorithm",
    "FixMatch",
    "Needs",
    "OfflineOkapi",
    "Okapi",
    "OkapiPlus",
    "SharedDomainsWarning",
    "offline_matches",
    "supervised_loss",
]
