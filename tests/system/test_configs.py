"""What the configs that come with Okapi say: the paper's settings, and of every variant what is varied."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import yaml
from tests.system.experiments import ALL, CONFIGS, FOLDERS, Overrides, config

from okapi.config import PAPER, MomentumSettings

# What the paper's tables and its appendix say of each experiment; where it is silent, the authors' configs.
# fmt: off
COMMON = {
    "training.learning_rate": 1e-4, "training.final_learning_rate": 5e-7, "training.weight_decay": 0.0,
    "training.warm_up": 0.0, "training.selector": "ood_val", "training.validate_every": 1000, "training.accumulate": 1,
}
CONVNEXT = {"model.backbone": "convnext-tiny", "model.pretrained": "facebook/convnext-tiny-224"}
IWILDCAM = COMMON | {
    "data.name": "iwildcam", "data.size": 448, "data.labelled_view": "strong", "training.metric": "macro_f1",
    **CONVNEXT, "training.steps": 120_000, "training.validate_every": 5000, "training.sampling": "uniform",
    "training.clip": None,
}
POVERTY = COMMON | {
    "data.name": "poverty", "data.unlabelled": "ood_val", "data.fold": "A", "data.nightlights": True,
    **CONVNEXT, "training.metric": "pearson_r_group_worst", "training.steps": 30_000, "training.sampling": "uniform",
    "training.clip": None,
}
CIVILCOMMENTS = COMMON | {
    "data.name": "civilcomments", "data.tokens": 300, "model.name": "text", "model.dropout": 0.1,
    "model.pretrained": "distilbert-base-uncased", "training.metric": "accuracy_group_worst",
    "training.steps": 20_000, "training.sampling": "class_balanced", "training.clip": 1.0,
}
OKAPI = {  # what the preset PAPER says, and of every experiment
    "algorithm.name": "okapi", "algorithm.domain": "binary", "algorithm.queries": "momentum", "algorithm.weight": 1.0,
    "algorithm.warm_up": 0.1, "algorithm.batch_norm": "by_pool", "algorithm.scorer.learning_rate": None,
    "algorithm.matching.caliper_scale": "probability", "algorithm.matching.direction": None,
}
OFFLINE = {
    "algorithm.name": "offline_okapi", "algorithm.domain": "binary", "algorithm.weight": 1.0, "algorithm.erm_run": None,
    "algorithm.warm_up": 0.1,
}
UNDISTORTED = {"data.labelled_view": "none", "data.unlabelled_view": "none"}


def batch(labelled: int, unlabelled: int) -> Overrides:
    return {"training.labelled_batch": labelled, "training.unlabelled_batch": unlabelled}


def calipers(fixed: float | None, std: float | None) -> Overrides:
    return {"algorithm.matching.fixed_caliper": fixed, "algorithm.matching.std_caliper": std}


def momentum(start: float | str, end: float) -> Overrides:
    return {"algorithm.momentum.start": start, "algorithm.momentum.end": end}


def of_algorithm(**values: Any) -> Overrides:
    return {f"algorithm.{key}": value for key, value in values.items()}


EXPERIMENTS = {
    "iwildcam/erm": IWILDCAM | {"algorithm.name": "erm", "training.labelled_batch": 24},
    "iwildcam/fixmatch": IWILDCAM | batch(16, 16) | of_algorithm(name="fixmatch", threshold=0.95, weight=1.0),
    "iwildcam/okapi": IWILDCAM | batch(16, 16) | OKAPI | calipers(0.95, 0.2)
    | momentum(0.999, 0.999)
    | {"algorithm.matching.k": 1, "algorithm.scorer.temperature": 1.1, "algorithm.bank": 16_384},
    "iwildcam/offline_okapi": IWILDCAM | batch(8, 8) | OFFLINE | calipers(0.95, 0.2) | {"algorithm.temperature": 1.1},
    "poverty/erm": POVERTY | UNDISTORTED | {"algorithm.name": "erm", "training.labelled_batch": 128},
    "poverty/fixmatch": POVERTY | batch(64, 64) | of_algorithm(name="fixmatch", threshold=0.0, weight=1.0)
    | {"data.labelled_view": "weak", "data.unlabelled_view": "weak"},
    "poverty/okapi": POVERTY | UNDISTORTED | batch(64, 64) | OKAPI | calipers(0.9, 0.2) | momentum(0.996, 1.0)
    | {"algorithm.matching.k": 5, "algorithm.scorer.temperature": 1.0, "algorithm.bank": 65_536},
    "poverty/offline_okapi": POVERTY | UNDISTORTED | batch(32, 32) | OFFLINE | calipers(0.9, 0.6)
    | {"algorithm.temperature": 0.7},
    "civilcomments/erm": CIVILCOMMENTS | {"algorithm.name": "erm", "training.labelled_batch": 48},
    "civilcomments/okapi": CIVILCOMMENTS | batch(48, 48) | OKAPI | calipers(1.0, 10.0) | momentum(0.996, 0.996)
    | {"algorithm.matching.k": 5, "algorithm.scorer.temperature": 1.0, "algorithm.bank": 65_536},
}

# Methods that are compared on one data set differ in the algorithm, and from erm in nothing else but this.
METHODS: dict[str, Overrides] = {
    "iwildcam/fixmatch": {"training.labelled_batch": 16},
    "iwildcam/okapi": {"training.labelled_batch": 16},
    "iwildcam/offline_okapi": batch(8, 8),
    "poverty/fixmatch": {"training.labelled_batch": 64, "data.labelled_view": "weak", "data.unlabelled_view": "weak"},
    "poverty/okapi": {"training.labelled_batch": 64},
    "poverty/offline_okapi": batch(32, 32),
    "civilcomments/okapi": {},
    "iwildcam/okapi_plus": {"training.labelled_batch": 16},
    "poverty/okapi_plus": {"training.labelled_batch": 64},
    "civilcomments/okapi_plus": {},
} | {
    f"{data}/{method}": {}
    for data in ("pacs", "pacs_features", "lsms", "sentiment", "digits", "sites")
    for method in ("fixmatch", "okapi", "okapi_plus", "offline_okapi")
} | {
    f"{data}/{method}": {} for data in ("pacs_features", "sites") for method in ("coral", "dann")
} | {"sentiment_text/okapi": {}, "sentiment_text/okapi_plus": {}}
DATA_OF_THE_PAPER = ("iwildcam", "poverty", "civilcomments")
RESNET_18 = {"model.backbone": "resnet-18", "model.pretrained": "microsoft/resnet-18"}
RESNET_50 = {"model.backbone": "resnet-50", "model.pretrained": "microsoft/resnet-50"}

# What is ablated or otherwise changed, and of what: the base, and all that differs.
VARIANTS: dict[str, tuple[str, Overrides]] = {
    "poverty/okapi_k1": ("poverty/okapi", {"algorithm.matching.k": 1}),
    "poverty/okapi_k10": ("poverty/okapi", {"algorithm.matching.k": 10}),
    "poverty/okapi_no_calipers": ("poverty/okapi", calipers(None, None)),
    "poverty/okapi_no_std_caliper": ("poverty/okapi", {"algorithm.matching.std_caliper": None}),
    "poverty/okapi_no_fixed_caliper": ("poverty/okapi", {"algorithm.matching.fixed_caliper": None}),
    "poverty/okapi_online_queries": ("poverty/okapi", {"algorithm.queries": "online"}),
    "poverty/okapi_one_direction": ("poverty/okapi", {"algorithm.matching.direction": [0, 1]}),
    "iwildcam/okapi_authors": ("iwildcam/okapi", {"algorithm.domain": "label"}),
    "civilcomments/okapi_authors": (
        "civilcomments/okapi", {"algorithm.weight": 10.0, "training.learning_rate": 5e-5},
    ),
    "civilcomments/erm_fully_labelled": ("civilcomments/erm", {"data.fully_labelled": True}),
    **{f"poverty/{name}_resnet": (f"poverty/{name}", RESNET_18) for name in ("erm", "fixmatch", "okapi")},
    **{f"iwildcam/{name}_resnet": (f"iwildcam/{name}", RESNET_50) for name in ("erm", "fixmatch", "okapi")},
    **{
        f"pacs/{name}_convnext": (f"pacs/{name}", CONVNEXT)
        for name in ("erm", "fixmatch", "okapi", "okapi_plus")
    },
    **{
        f"{data}/erm_fully_labelled": (f"{data}/erm", {"data.fully_labelled": True})
        for data in ("pacs", "pacs_features", "lsms", "sentiment", "digits", "sites")
    },
    **{
        f"{data}/erm_centred": (f"{data}/erm", {"data.centre": "domain"})
        for data in ("pacs_features", "sentiment")
    },
    **{
        f"{data}/okapi_no_calipers": (f"{data}/okapi", calipers(None, None))
        for data in ("pacs_features", "lsms", "sentiment", "digits", "sites")
    },
}
# fmt: on


@cache
def flat(name: str) -> Overrides:
    """Return all values of a config by dotted key."""

    def pairs(values: Overrides, prefix: str) -> Iterator[tuple[str, Any]]:
        for key, value in values.items():
            if isinstance(value, dict):
                yield from pairs(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", value

    return dict(pairs(config(name).as_dict(), ""))


def changed(before: str, after: str) -> Overrides:
    """Return what another config says of each key that is not the same in both."""
    old, new = flat(before), flat(after)
    missing = object()
    return {key: new.get(key) for key in old | new if old.get(key, missing) != new.get(key, missing)}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_of_the_paper_have_its_settings(name):
    found = flat(name)
    assert {key: found.get(key, "no such key") for key in EXPERIMENTS[name]} == EXPERIMENTS[name]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_differs_from_its_base_in_what_is_varied_and_nothing_else(name):
    base, expected = VARIANTS[name]
    assert changed(base, name) == expected


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_a_data_set_differ_in_the_algorithm(name):
    found = changed(f"{name.split('/')[0]}/erm", name)
    assert {key: value for key, value in found.items() if not key.startswith("algorithm.")} == METHODS[name]
    assert found["algorithm.name"] == name.split("/")[1]


def test_every_config_is_known():
    bases = {f"{name.split('/')[0]}/erm" for name in METHODS}
    assert set(ALL) == bases | set(METHODS) | set(VARIANTS)
    assert set(EXPERIMENTS) <= bases | set(METHODS)


@pytest.mark.parametrize("name", sorted(EXPERIMENTS.keys() & {f"{data}/okapi" for data in DATA_OF_THE_PAPER}))
def test_experiments_of_the_paper_differ_from_its_preset_by_what_it_says(name):
    """By the table of its settings: k, the fixed caliper, temperature, momentum and bank, and the std-caliper."""
    settings, may_differ = config(name).algorithm, PAPER.matching
    matching = replace(settings.matching, k=may_differ.k, fixed_caliper=0.9, std_caliper=0.2)
    assert matching == may_differ
    same = replace(settings, matching=matching, scorer=PAPER.scorer, momentum=PAPER.momentum, bank=PAPER.bank)
    assert same == PAPER
    assert name != "poverty/okapi" or settings == PAPER


@pytest.mark.parametrize("data", sorted({*FOLDERS} - {*DATA_OF_THE_PAPER}))
def test_elsewhere_the_paper_s_method_is_its_preset_but_for_lag_and_bank(data):
    settings = config(f"{data}/okapi").algorithm
    assert replace(settings, bank=PAPER.bank) == replace(PAPER, momentum=MomentumSettings(start="auto", end=1.0))


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_data_set_has_one_complete_base_that_all_others_include(folder):
    base = yaml.safe_load((CONFIGS / folder / "base.yaml").read_text())
    assert list(base) == ["data", "model", "algorithm", "training"]
    assert base["algorithm"] == {"name": "erm"}
    for key in ("steps", "labelled_batch", "unlabelled_batch", "learning_rate", "selector"):
        assert key in base["training"]
    assert set(changed(f"{folder}/base", f"{folder}/erm")) <= {"training.labelled_batch"}
    for path in (CONFIGS / folder).glob("*.yaml"):
        if path.stem != "base":
            content = yaml.safe_load(path.read_text())
            assert content.pop("include") == "base.yaml"
            for section, values in content.items():
                known = {} if section == "algorithm" else base[section]
                assert not [key for key in values if key != "name" and known.get(key, ...) == values[key]], path
