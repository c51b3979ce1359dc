"""What centring does to pairs: the share of one class, and of keys that are used, between any two domains of a file.

    python benchmarks/centring.py pacs_features.npz

The file has x (n, d), label (n,) and domain (n,). Each sample is matched to its 5 nearest ones in the other domain, as
unit vectors: as they are, less the mean of their domain, and by CSLS. Nothing is trained, and no caliper is used.
"""

import argparse
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import normalize

from _common import machine_facts
from okapi.matching import Matches, caliper_nn, centred
from okapi.nn.hubs import penalised

K = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    with np.load(chosen.file) as arrays:
        x, label, domain = torch.from_numpy(arrays["x"]).float(), arrays["label"], arrays["domain"].astype(str)
    print(machine_facts())
    rows = [row(normalize(x, dim=1), label, domain, *pair) for pair in permutations(np.unique(domain), 2)]
    print(f"Share of pairs of one class, and of keys that are used, in per cent; k = {K}\n")
    print(pd.DataFrame(rows).to_string(index=False))


def row(x: torch.Tensor, label: np.ndarray, domain: np.ndarray, source: str, target: str) -> dict[str, str]:
    """Return the shares from one domain to another, by each way of comparing."""
    rows = [np.flatnonzero(domain == name) for name in (source, target)]
    vectors = [x[part] for part in rows]
    sides = [torch.full((len(part),), number) for number, part in enumerate(rows)]
    ways = {
        "plain": vectors,
        "centred": centred(*vectors, *sides),
        "CSLS": penalised(*vectors, *sides),
        "centred, CSLS": penalised(*centred(*vectors, *sides), *sides),
    }
    labels = [label[part] for part in rows]
    found = {"from": source, "to": target}
    for name, (query, key) in ways.items():
        matches = caliper_nn(query, key, query_domain=sides[0], key_domain=sides[1], k=K)
        found[name] = f"{right(matches, *labels):.0%}, {used(matches, len(key)):.0%}"
    return found


def right(matches: Matches, query_label: np.ndarray, key_label: np.ndarray) -> float:
    return float((query_label[matches.query][:, None] == key_label[matches.key]).mean())


def used(matches: Matches, keys: int) -> float:
    return len(matches.key.unique()) / min(keys, matches.key.numel())


if __name__ == "__main__":
    main()
