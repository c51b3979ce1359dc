"""Settings of the algorithms: the paper's are the defaults, they are few, and bad ones are rejected at once."""

import inspect
import re
from dataclasses import fields, is_dataclass

import pytest
from tests.algorithms.test_contract import TASKS, make
from torch import nn

from okapi.algorithms import Okapi, OkapiPlus
from okapi.config import (
    PAPER,
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
from okapi.nn import CrossDomainConsistency


def leaves(settings):
    values = [getattr(settings, field.name) for field in fields(settings)]
    return sum(leaves(value) if is_dataclass(value) else 1 for value in values)


def test_the_defaults_of_okapi_are_the_papers():
    assert OkapiSettings() == PAPER
    algorithm = Okapi(make("erm", TASKS["regression"]).network, TASKS["regression"], steps=30_000)
    assert algorithm.settings == PAPER
    assert algorithm.consistency.encodings.capacity == 65_536
    assert algorithm.consistency.momentum.decay(0) == 0.996
    assert algorithm.consistency.momentum.decay(30_000) == 1.0
    assert algorithm.consistency.weight(1500) == 0.5
    assert algorithm.consistency.task is None  # outcomes have no part


def test_settings_are_few():
    assert Okapi.Settings is OkapiSettings
    assert OkapiPlus.Settings is OkapiPlusSettings
    assert leaves(OkapiSettings()) <= 16
    assert leaves(OkapiPlusSettings()) <= 20
    assert len(inspect.signature(CrossDomainConsistency).parameters) <= 18


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (MatchingSettings, {"k": 0}, "k must be a whole number from 1 to 1,000,000,000, got 0"),
        (MatchingSettings, {"k": True}, "k must be a whole number from 1 to 1,000,000,000, got True"),
        (MatchingSettings, {"fixed_caliper": 0.5}, "fixed_caliper must not be 0.5"),
        (MatchingSettings, {"fixed_caliper": 1.5}, "fixed_caliper must be a number from 0 to 1 or null, got 1.5"),
        (
            MatchingSettings,
            {"std_caliper": -1},
            "std_caliper must be a number of more than 0 and at most 1,000,000 or null, got -1",
        ),
        (
            MatchingSettings,
            {"std_caliper": float("nan")},
            "std_caliper must be a number of more than 0 and at most 1,000,000 or null, got nan",
        ),
        (MatchingSettings, {"caliper_scale": "log"}, "caliper_scale must be one of probability, logit, got 'log'"),
        (MatchingSettings, {"direction": (1, 1)}, "direction must name two different domains, got (1, 1)"),
        (PrognosticMatchingSettings, {"k": 0}, "k must be a whole number from 1 to 1,000,000,000, got 0"),
        (
            PrognosticMatchingSettings,
            {"prognostic_caliper": -1.0},
            "prognostic_caliper must be a number from 0 to 1,000,000, auto",
        ),
        (
            PrognosticMatchingSettings,
            {"prognostic_caliper": "wide"},
            "prognostic_caliper must be a number from 0 to 1,000,000, auto",
        ),
        (PrognosticMatchingSettings, {"class_prior": 2}, "class_prior must be a number from 0 to 1 or null, got 2"),
        (MomentumSettings, {"start": 1.1}, "start must be a number from 0 to 1 or auto, got 1.1"),
        (MomentumSettings, {"end": -0.5}, "end must be a number from 0 to 1 or null, got -0.5"),
        (
            ScorerSettings,
            {"temperature": 0},
            "temperature must be a number of more than 0 and at most 1,000,000, got 0",
        ),
        (
            ScorerSettings,
            {"temperature": "auto"},
            "temperature must be a number of more than 0 and at most 1,000,000, got 'auto'",
        ),
        (
            ScorerSettings,
            {"learning_rate": 0},
            "learning_rate must be a number of more than 0 and at most 1,000,000 or null, got 0",
        ),
        (PseudoLabelSettings, {"weight": -1}, "weight must be a number from 0 to 1,000,000, got -1"),
        (PseudoLabelSettings, {"confidence": 1.5}, "confidence must be a number from 0 to 1, got 1.5"),
        (PseudoLabelSettings, {"error_gate": 0}, "error_gate must be a number of more than 0 and at most 1, got 0"),
        (OkapiSettings, {"queries": "other"}, "queries must be one of momentum, online, got 'other'"),
        (OkapiSettings, {"batch_norm": "no"}, "batch_norm must be one of by_pool, joint, got 'no'"),
        *(
            (settings, values, message)
            for settings in (OkapiSettings, OkapiPlusSettings)
            for values, message in (
                ({"domain": "site"}, "domain must be one of binary, label, got 'site'"),
                ({"bank": 0}, "bank must be a whole number from 1 to 100,000,000, got 0"),
                ({"weight": -2.0}, "weight must be a number from 0 to 1,000,000, got -2.0"),
                ({"warm_up": 2}, "warm_up must be a number from 0 to 1, got 2"),
            )
        ),
        (FixMatchSettings, {"threshold": 1.2}, "threshold must be a number from 0 to 1, got 1.2"),
        (OfflineOkapiSettings, {"matching": MatchingSettings(k=2)}, "matching must have k = 1 and no direction"),
        (
            OfflineOkapiSettings,
            {"temperature": 0},
            "temperature must be a number of more than 0 and at most 1,000,000, got 0",
        ),
    ],
)
def test_bad_settings_are_rejected_at_construction(kind, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        kind(**settings)


def test_okapi_has_no_prognostic_matching():
    with pytest.raises(ValueError, match="matching must be MatchingSettings: centring and the prognostic caliper are"):
        make("okapi", TASKS["classification"], matching=PrognosticMatchingSettings())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"matching": PrognosticMatchingSettings()}, "prognostic_caliper needs a task"),
        (
            {"matching": PrognosticMatchingSettings(), "task": TASKS["classification"], "queries": "online"},
            "prognostic_caliper needs a task, which says what outcomes are, and momentum queries",
        ),
        ({"queries": "other"}, "queries must be 'momentum' or 'online', got 'other'"),
        ({"temperature": 0.0}, "temperature must be a positive number, got 0.0"),
        ({"bank": 0}, "bank must be at least 1"),
    ],
)
def test_bad_arguments_of_the_consistency_are_rejected_at_construction(arguments, message):
    with pytest.raises(ValueError, match=message):
        CrossDomainConsistency(nn.Linear(4, 6), **arguments)
