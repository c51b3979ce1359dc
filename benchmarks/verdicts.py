"""Was the diagnosis right? What ``okapi diagnose`` expects of each target, beside what the study then found.

    python benchmarks/headline.py DATA PREPARED --out runs/headline
    python benchmarks/verdicts.py DATA PREPARED --study runs/headline

The diagnosis reads encodings, features or pixels, and no label of the target. Its expectations of matching without
calipers, with the paper's and by our defaults stand beside what these methods gained on ERM, paired by seeds; its
verdict is of the best way that it knows. Diagnoses are kept, and not made again.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from _common import machine_facts, markdown_table
from headline import METHODS, STUDIES, Study, find_file, transfer
from okapi.benchmark import paired_difference
from okapi.benchmark.statistics import Difference
from okapi.evaluation import diagnose
from okapi.training.files import write_bytes

COMPARED = {"none": "Okapi, no calipers", "paper": "Okapi, paper", "ours": "Okapi, ours"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("prepared", type=Path, metavar="PREPARED")
    parser.add_argument("--study", type=Path, default=Path("runs/headline"), help="where headline.py wrote")
    chosen = parser.parse_args()
    tables = {name: chosen.study / f"{name}.csv" for name, study in STUDIES.items() if study.path is not None}
    done = [name for name, table in tables.items() if table.is_file()]
    if not done:
        parser.error(f"{chosen.study} holds no table of headline.py, such as {tables['pacs'].name}")
    print(machine_facts())
    header = ["target", "verdict", *(f"{name}: expected, gained" for name in COMPARED.values())]
    rows, cases = [], []
    for name in done:
        study, frame = STUDIES[name], pd.read_csv(tables[name])
        path = find_file(study, chosen.data, chosen.prepared)
        for target in study.targets:
            found = diagnosis(study, target, path, chosen.study / "diagnoses" / f"{name}-{target}.json")
            expected = {row["calipers"]: row["expectation"] for row in found["expected"]}
            gains = {way: gain(study, frame, target, method) for way, method in COMPARED.items()}
            cases += [(study.transfers, expected[way], its.mean) for way, its in gains.items()]
            compared = [f"{expected[way]}, {g.mean:+.1f} [{g.low:+.1f}, {g.high:+.1f}]" for way, g in gains.items()]
            best = f" by {found['chosen']}" if found["chosen"] else ""
            rows.append([f"{name} {target}", found["verdict"] + best, *compared])
            print(rows[-1][0], flush=True)
    print("\nWhat was expected, and points gained on ERM [95 % interval]; r of LSMS in hundredths\n")
    print(markdown_table(header, rows))
    gained = pd.DataFrame(cases, columns=["pixels", "expected", "gain"])
    print("\nThe same by what was expected, over all targets and the three methods\n")
    print(summary(gained))
    print("\nOf features alone, whose targets have several sources\n")
    print(summary(gained[~gained["pixels"]]))


def summary(gained: pd.DataFrame) -> str:
    """Return a table of what was gained, by what was expected, the largest gain first."""
    found = gained.groupby("expected")["gain"].agg(["size", "mean", lambda gain: (gain > 0).sum()])
    rows = [[what, cases, f"{mean:+.1f}", above] for what, cases, mean, above in found.sort_values("mean").itertuples()]
    return markdown_table(["expected", "cases", "mean gain", "above ERM"], rows[::-1])


def diagnosis(study: Study, target: str, path: Path, kept: Path) -> dict[str, Any]:
    """Return what is expected of a target whose labels are not given."""
    if not kept.exists():
        source, held_out = transfer(study, target)
        with np.load(path) as arrays:
            x = arrays["x"].reshape(len(arrays["x"]), -1).astype(np.float32)
            domain = arrays["country" if "country" in arrays else "domain"].astype(str)
            y = arrays["label" if "label" in arrays else "y"].astype(object)
        rows = np.isin(domain, [source, held_out]) if source else np.ones(len(domain), dtype=bool)
        task = "classification" if study.metrics == ("accuracy",) else "regression"
        found = diagnose(x[rows], domain[rows], np.where(domain == held_out, None, y)[rows], task=task)
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(kept, json.dumps(found.as_dict(), indent=1).encode())
    return dict(json.loads(kept.read_text(encoding="utf-8")))


def gain(study: Study, frame: pd.DataFrame, target: str, method: str) -> Difference:
    """Return what a method gained on ERM, in hundredths, and its interval."""
    rows = frame[(frame["metric"] == study.metrics[0]) & (frame["target"] == target)]
    theirs, erm = (
        {(target, row.seed): 100 * row.value for row in rows[rows["method"] == METHODS[name]].itertuples(index=False)}
        for name in (method, "ERM")
    )
    return paired_difference(theirs, erm, names=(method, "ERM"))


if __name__ == "__main__":
    main()
