"""Matches of validation samples with labelled ones: the figures that a run logs, against brute force on its weights."""

import numpy as np
import pandas as pd
import pytest
import torch
from tests.matching.oracle import brute_force
from tests.training.small_data import SPLIT, TARGETS, TEST_ROWS, Recorded, config, register

from okapi.runs.checkpoints import read_checkpoint
from okapi.training import train, validation
from okapi.training.devices import make_fabric
from okapi.training.inference import predict
from okapi.training.setup import build_parts
from okapi.training.validation import ValidationMatches, draw

pytestmark = pytest.mark.filterwarnings("ignore::okapi.algorithms.cross_domain.SharedDomainsWarning")
WAYS = ("to_labelled", "from_labelled")
OKAPI = {"name": "okapi", "bank": 20}
NONE = {"k": 2, "fixed_caliper": None, "std_caliper": None}
OUTCOME = {"k": 2, "centre": False, "class_prior": 0.0}
PROPENSITY = {"k": 2, "fixed_caliper": 0.7, "std_caliper": 0.6}
TEMPERATURE = 0.5
CASES = {  # task, how samples are matched, the domain
    "classes": ("classification", NONE, "binary"),
    "classes, propensity": ("classification", PROPENSITY, "binary"),
    "classes, logits by label": ("classification", NONE | {"std_caliper": 0.3, "caliper_scale": "logit"}, "label"),
    "classes, outcome": ("classification", OUTCOME | {"prognostic_caliper": 0.8}, "binary"),
    "classes, outcome as predicted": (
        "classification",
        OUTCOME | {"prognostic_caliper": 0.8, "class_prior": None},
        "binary",
    ),
    "number, outcome": ("regression", OUTCOME | {"prognostic_caliper": 1.0}, "binary"),
    "numbers, outcome": ("several numbers", OUTCOME | {"prognostic_caliper": 4.0}, "binary"),
    "labels, both": ("multilabel", OUTCOME | PROPENSITY | {"prognostic_caliper": 0.9}, "binary"),
}


def okapi(matching, domain="binary"):
    """Return the section of a config, of Okapi+ where pairs have to agree in outcome."""
    plus = "prognostic_caliper" in matching
    scorer = {"temperature": TEMPERATURE}
    return OKAPI | {"name": "okapi_plus" if plus else "okapi", "matching": matching, "domain": domain, "scorer": scorer}


def logged(run, split, step):
    metrics = pd.read_csv(run / "metrics.csv")
    found = metrics[(metrics.split == split) & (metrics.step == step)].set_index("metric").value
    return found[found.index.str.startswith("match_")].to_dict()


def prognosis_of(task, target=None, prediction=None):
    """Return labels, or what the network predicts, as the prognostic caliper compares them."""
    if target is None:
        both = {"classification": lambda x: x.softmax(1), "multilabel": torch.sigmoid, "regression": lambda x: x}
        return both[task.kind](prediction).numpy()
    if task.kind == "classification":
        return np.eye(task.outputs)[target.numpy()]
    return target.reshape(len(target), -1).numpy()


def figure_of(task, query, key, everyone):
    """Return whether two classes are equal, the share of equal labels, or a distance in standard deviations."""
    if task.kind == "regression":
        return np.mean((query - key).abs().double().numpy() / everyone.double().numpy().std(axis=0))
    return float((query == key).double().mean())


def expected(run, algorithm, dataset, split, calipers, domain):
    """Return the figures of a split by brute force, from the weights of a checkpoint."""
    state = read_checkpoint(run / "checkpoints" / "step-00000004").state["learner"]["algorithm"]
    algorithm.load_state_dict(state)
    algorithm.eval()
    sides = {}
    for name in ("train", split):
        rows = dataset.rows(name)
        with torch.no_grad():
            encoding, prediction = algorithm.network(dataset.inputs[rows])
        unit = encoding / encoding.norm(dim=1, keepdim=True)
        by_label = domain == "label"
        score = None
        if calipers.get("fixed_caliper") or calipers.get("std_caliper"):
            weight, bias = state["consistency.scorer.linear.weight"], state["consistency.scorer.linear.bias"]
            logits = (unit @ weight.T + bias) / TEMPERATURE
            score = (logits.softmax(1) if by_label else logits[:, 0].sigmoid()).numpy()
        target = dataset.target[rows]
        sides[name] = {
            "vectors": unit.double().numpy(),
            "domain": dataset.domain[rows].numpy() if by_label else np.full(len(rows), int(name != "train")),
            "propensity": score,
            "prognosis": prognosis_of(dataset.task, target if name == "train" else None, prediction),
            "target": target,
        }
    if dataset.task.kind == "regression":
        scale = sides["train"]["prognosis"].std(axis=0, ddof=1)
        for side in sides.values():
            side["prognosis"] = side["prognosis"] / scale
    elif dataset.task.kind == "classification" and calipers.get("class_prior") is not None:
        said = sides[split]["prognosis"]
        aligned = said * sides["train"]["prognosis"].mean(axis=0) / said.mean(axis=0)
        sides[split]["prognosis"] = aligned / aligned.sum(axis=1, keepdims=True)
    everyone = torch.cat([side["target"] for side in sides.values()])
    rules = {name: value for name, value in calipers.items() if name not in ("centre", "class_prior")}
    figures = {}
    for way, (query, key) in zip(WAYS, ((split, "train"), ("train", split)), strict=True):
        q, k = sides[query], sides[key]
        matches = brute_force(
            q["vectors"],
            k["vectors"],
            **{f"query_{name}": q[name] for name in ("domain", "propensity", "prognosis")},
            **{f"key_{name}": k[name] for name in ("domain", "propensity", "prognosis")},
            **rules,
        )
        figures[f"match_rate_{way}"] = len(matches) / len(q["vectors"])
        values = [
            figure_of(dataset.task, q["target"][row], k["target"][one], everyone)
            for row, ones, _ in matches
            for one in ones
        ]
        name = "match_distance" if dataset.task.kind == "regression" else "match_precision"
        if values:
            figures[f"{name}_{way}"] = np.mean(values)
    return figures


@pytest.mark.parametrize("case", CASES)
def test_figures_in_the_log_are_those_of_the_checkpoint_s_encodings(case, monkeypatch, tmp_path):
    kind, calipers, domain = CASES[case]
    dataset = register(monkeypatch, kind)
    chosen = config(okapi(calipers, domain), steps=4, validate_every=2)
    train(chosen, tmp_path / "run")
    algorithm = build_parts(chosen).algorithm
    for split in ("id_val", "ood_val"):
        found = logged(tmp_path / "run", split, 4)
        assert found == pytest.approx(expected(tmp_path / "run", algorithm, dataset, split, calipers, domain))
        assert 0 < found["match_rate_from_labelled"] <= 1


def test_targets_of_a_split_change_its_precision_and_nothing_else(monkeypatch, tmp_path):
    found = []
    for name in ("one", "other"):
        target = TARGETS["classification"][1].clone()
        if name == "other":
            target[torch.from_numpy(SPLIT == "ood_val")] = 0
        register(monkeypatch, target=target)
        train(config(okapi(NONE), steps=4, validate_every=2, selector="last"), tmp_path / name)
        found.append(logged(tmp_path / name, "ood_val", 4))
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == (
        tmp_path / "other" / "model.safetensors"
    ).read_bytes()
    assert found[0]["match_rate_to_labelled"] == found[1]["match_rate_to_labelled"]
    assert found[0]["match_precision_to_labelled"] != found[1]["match_precision_to_labelled"]


def test_methods_that_match_nothing_log_nothing_and_read_no_more(monkeypatch, tmp_path):
    read = {}
    for name in ("erm", "okapi"):
        inputs = Recorded(torch.randn(len(SPLIT), 5, generator=torch.Generator().manual_seed(0)))
        register(monkeypatch, inputs=inputs)
        train(config({"name": "erm"} if name == "erm" else okapi(NONE), steps=1, workers=0), tmp_path / name)
        read[name] = inputs.read
        assert not TEST_ROWS & set(inputs.read)
        assert bool(logged(tmp_path / name, "ood_val", 1)) == (name == "okapi")
    of_train = {name: sum(SPLIT[row] == "train" for row in rows) for name, rows in read.items()}
    assert of_train["okapi"] >= of_train["erm"] + 12  # those that are matched
    assert of_train["erm"] < 12 + 12  # the batch, and the reference that new samples are compared with


def test_as_many_samples_as_may_be_are_drawn_by_the_seed(monkeypatch, tmp_path):
    dataset = register(monkeypatch)
    monkeypatch.setattr(validation, "MATCHED", 5)
    chosen = config(okapi(NONE), steps=1)
    algorithm = build_parts(chosen).algorithm
    found = [ValidationMatches(chosen, dataset, algorithm) for _ in range(2)]
    for split in ("train", "id_val", "ood_val"):
        rows = found[0].rows[split]
        assert torch.equal(rows, found[1].rows[split])
        assert len(rows) == 5
        assert set(rows.tolist()) < set(dataset.rows(split).tolist())
    train(chosen, tmp_path / "run")
    assert logged(tmp_path / "run", "ood_val", 1)["match_rate_to_labelled"] == 1.0


def test_encodings_may_be_of_some_rows_only(monkeypatch):
    dataset = register(monkeypatch)
    chosen = config(OKAPI, evaluation_batch=5)
    network, fabric = build_parts(chosen).algorithm.network, make_fabric(chosen)
    split = dataset.rows("id_val")
    rows = draw(split, 7, seed=1)
    every = predict(network, dataset, split, encodings=True, batch_size=5, fabric=fabric)
    some = predict(network, dataset, split, encodings=rows, batch_size=5, fabric=fabric)
    place = torch.isin(split, rows)
    assert torch.equal(some.encoding, every.encoding[place])
    assert torch.equal(some.prediction, every.prediction)
