"""Settings as dataclasses. The lowest layer: it imports no torch and nothing else of Okapi."""

from okapi.config.algorithms import (
    PAPER,
    ERMSettings,
    FixMatchSettings,
    MatchingSettings,
    MomentumSettings,
    OfflineOkapiSettings,
    OkapiPlusSettings,
    OkapiSettings,
    PrognosticMatchingSettings,
    PseudoLabelSettings,
    ScorerSettings,
)

__all__ = [
    "PAPER",
    "ERMSettings",
    "FixMatchSettings",
    "MatchingSettings",
    "MomentumSettings",
    "OfflineOkapiSettings",
    "OkapiPlusSettings",
    "OkapiSettings",
    "PrognosticMatchingSettings",
    "PseudoLabelSettings",
    "ScorerSettings",
]
