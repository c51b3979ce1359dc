"""What ``okapi data`` prints of a data set, and what it writes: contact sheets, tables of samples and duplicates."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.text import Text
from torch import Tensor

from okapi.config import TableSettings
from okapi.console import print_notes, stdout, working
from okapi.data import write_frame
from okapi.data.duplicates import LEAST_SIDE, LIKENESS, NEAR_NEEDS, can_find_near, is_images, what
from okapi.data.images import Images
from okapi.data.inspection import Inspection, check_near, inspect_columns, inspect_dataset, is_leak
from okapi.data.io import open_table
from okapi.data.labels import label_columns
from okapi.data.registry import unchecked_dataset
from okapi.data.text import Texts
from okapi.files import remove, write_bytes
from okapi.messages import listed
from okapi.numbers import count
from okapi.report.contact_sheet import contact_sheet, pair_sheet
from okapi.table import Column, Table, spreadsheet_safe

MOST_FAULTS, MOST_PAIRS, MOST_SIZES, EXAMPLES = 20, 10, 5, 2
_BARS = " ▁▂▃▄▅▆▇█"
_TEXT = 100  # characters of an example
_FIRST = 10  # classes of which examples are shown


def data_report(
    source: Path, settings: Any, *, near: int | None, out: Path | None, most: int, safe_csv: bool = False
) -> int:
    """Print what a data set holds and, if asked to, write sheets and tables; return how many samples cannot be used.

    Parameters
    ----------
    source : Path
        What the data set is called.
    settings : dataclass
        Those of a config's section ``data``.
    near : int, optional
        As of ``inspect_dataset``.
    out : Path, optional
        Folder for ``samples.csv``, ``duplicates.csv``, ``contact_sheet.png`` and ``near_duplicates.png``, which are
        replaced; it is made if need be.
    most : int
        Domains, classes and columns that are printed.
    safe_csv : bool, default False
        Whether no text in the tables may begin as a formula.
    """
    check_near(near)
    if most < 1:
        raise ValueError(f"most must be at least 1, got {most}")
    _check_out(out, source)
    with working(f"Reading {source}"):
        dataset, left_out = unchecked_dataset(settings)
    inspection = inspect_dataset(dataset, near, left_out)
    console = stdout()
    print_inspection(console, inspection, str(source), near, most)
    if isinstance(settings, TableSettings):
        columns = inspect_columns(open_table(settings.path, settings.separator), label_columns(settings))
        _print(console, "Columns to look at", columns, most, words=["column", "holds", "look at"])
        if columns.empty:
            console.print()
            _say(console, "Columns: nothing is missing, and none looks wrong")
    console.print()
    if out is not None:
        for path in write_report(inspection, source.name or str(source), out, safe_csv):
            _say(console, f"Written: {path}")
    else:
        sheet = "a contact sheet and " if is_images(dataset) else ""
        _say(console, f"--out FOLDER writes {sheet}tables of all samples and duplicates")
    return len(inspection.faults()) + len(left_out)


def print_inspection(console: Console, inspection: Inspection, source: str, near: int | None, most: int) -> None:
    """Print all there is to report; tables by domain and class have no more rows than ``most``."""
    dataset = inspection.dataset
    _say(console, _headline(inspection, source))
    _print_counts(console, "Samples by split", "split", inspection.splits(), len(inspection.used))
    several = ", of which a sample may have several" if dataset.domain.ndim == 2 else ""
    _print_counts(console, f"Samples by domain{several}", "domain", inspection.domains(), most)
    if inspection.class_names:
        _print_counts(console, "Samples by class, where it is known", "class", inspection.classes(), most)
    else:
        for by in ("split", "domain"):
            _print_targets(console, inspection.targets(by), most)
    if is_images(dataset):
        _print_sizes(console, inspection)
    if not isinstance(dataset.inputs, Tensor | Texts):
        faults = inspection.faults()
        title = f"Cannot be read: {count(len(faults))} of {count(len(dataset))}"
        faults = faults[["split", "reason"]].rename(columns={"reason": "file"})
        _print(console, title, faults, MOST_FAULTS, words=["split", "file"])
        if faults.empty:
            console.print()
            _say(console, "All files can be read")
    left_out = pd.DataFrame({"why": inspection.left_out})
    _print(console, f"Left out: {count(len(left_out))} rows", left_out, MOST_FAULTS, words=["why"])
    _print_notes(console, inspection)
    _print_duplicates(console, inspection, near)
    if isinstance(dataset.inputs, Texts):
        _print_examples(console, inspection)


def _headline(inspection: Inspection, source: str) -> str:
    dataset, classes = inspection.dataset, count(len(inspection.class_names))
    tasks = {"classification": f"{classes} classes", "multilabel": f"{classes} labels", "regression": "regression"}
    domains = count(len(inspection.domain_names()))
    return f"{source}: {count(len(dataset))} {what(dataset)} of {domains} domains, {tasks[dataset.task.kind]}"


def write_report(inspection: Inspection, title: str, out: Path, safe_csv: bool = False) -> list[Path]:
    """Write tables and, of images, sheets to a folder, each as a whole; what is not needed any more is removed."""
    out.mkdir(parents=True, exist_ok=True)
    every = inspection.duplicates
    frames = {"samples.csv": inspection.samples(), "duplicates.csv": inspection.pairs(every)}
    for name, frame in frames.items():
        write_frame(spreadsheet_safe(frame) if safe_csv else frame, out / name)
    sheets: dict[str, bytes] = {}
    if is_images(inspection.dataset) and any(found.digest for found in inspection.prints):
        sheets["contact_sheet.png"] = contact_sheet(inspection, _headline(inspection, title))
        if not every["exact"].all():
            first = _leaks_first(inspection, every[~every["exact"]])
            sheets["near_duplicates.png"] = pair_sheet(inspection, first, f"{title}: images that are nearly the same")
    for name in ("contact_sheet.png", "near_duplicates.png"):
        if name in sheets:
            write_bytes(out / name, sheets[name])
        else:
            remove(out / name)
    return [out / name for name in (*frames, *sheets)]


def _check_out(out: Path | None, source: Path) -> None:
    """Reject, before any work is done, a folder that could not be written or would become a part of the data."""
    if out is None:
        return
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; --out names a folder")
    if source.is_dir() and out.resolve().is_relative_to(source.resolve()):
        raise ValueError(f"--out must not be in the data, {source}, got {out}")


def _say(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=not console.is_terminal)


def _print(
    console: Console, title: str, frame: pd.DataFrame, most: int | None = None, rest: str = "", *, words: Sequence[str]
) -> None:
    """Print a frame, if it has rows; integers are grouped, and columns that do not hold words stand at the right."""
    if frame.empty:
        return
    columns = [name if name in words else Column(str(name), str) for name in frame.columns]
    rows = [[count(cell) if isinstance(cell, int) else str(cell) for cell in row] for row in frame.to_numpy(object)]
    Table(title=title, columns=columns, rows=rows).print(console, most, rest)


def _print_counts(console: Console, title: str, label: str, frame: pd.DataFrame, most: int) -> None:
    shown = frame.drop(columns="all") if "all" in frame and frame.shape[1] == 2 else frame  # of one split, twice
    left = frame.iloc[most:]["all" if "all" in frame else "samples"].sum()
    _print(console, title, shown.rename_axis(label).reset_index(), most, f"{count(int(left))} samples", words=[label])


def _print_targets(console: Console, frame: pd.DataFrame, most: int) -> None:
    label = str(frame.columns[0])
    numbers = frame.columns[2:-1]
    shown = frame.assign(histogram=frame["histogram"].map(_bars), **frame[numbers].map("{:.4g}".format))
    _print(console, f"Targets by {label}", shown, most, words=[label, "histogram"])


def _bars(counts: Sequence[int]) -> str:
    """Return a histogram in a line; what is not empty is seen."""
    steps = len(_BARS) - 1
    return "".join(_BARS[-(-steps * number // max(*counts, 1))] for number in counts)


def _print_sizes(console: Console, inspection: Inspection) -> None:
    sizes = inspection.sizes()
    if sizes.empty:
        return
    pixels = [f"{width} x {height}" for width, height in zip(sizes["width"], sizes["height"], strict=True)]
    shown = sizes[["mode", "images"]]
    shown.insert(0, "pixels", pixels)
    left = f"{count(int(sizes['images'].iloc[MOST_SIZES:].sum()))} images"
    _print(console, "Sizes of images", shown, MOST_SIZES, left, words=["pixels", "mode"])
    sides = []
    for side in ("width", "height"):
        values = np.repeat(sizes[side].to_numpy(), sizes["images"].to_numpy())
        sides.append(f"{side} {values.min():,} to {values.max():,}, median {np.median(values):,.0f}")
    modes = sizes.groupby("mode")["images"].sum().sort_values(ascending=False)
    named = ", ".join(f"{mode} ({count(number)})" for mode, number in modes.items())
    _say(console, f"Sides: {'; '.join(sides)}. Modes: {named}")


def _print_notes(console: Console, inspection: Inspection) -> None:
    """Print what may be meant, but is worth to be looked at."""
    notes = []
    counts = inspection.domains()["all"]
    if alone := [str(name) for name in counts.index[counts == 1]]:
        noun = "domain has" if len(alone) == 1 else "domains have"
        notes.append(f"{count(len(alone))} {noun} a single sample: {listed(alone, most=5)}")
    for split, domains in inspection.shared_domains().items():
        noun = "domain is" if len(domains) == 1 else "domains are"
        notes.append(f"{count(len(domains))} {noun} in both train and {split}: {listed(domains, most=5)}")
    if unseen := inspection.unseen_classes():
        noun = "class has" if len(unseen) == 1 else "classes have"
        samples = count(sum(unseen.values()))
        notes.append(
            f"{count(len(unseen))} {noun} no sample in train, but {samples} in evaluation: {listed(unseen, most=5)}"
        )
    print_notes(console, notes)


def _print_duplicates(console: Console, inspection: Inspection, near: int | None) -> None:
    split, across, found = inspection.split, inspection.across_splits, inspection.duplicates
    heads = ["samples of", "with a duplicate in"]
    table = inspection.duplicates_by_split().rename(columns=dict(zip(("split", "of"), heads, strict=True)))
    table[""] = ["leak" if is_leak(*row) else "" for row in table[heads].to_numpy().tolist()]
    _print(console, "Duplicates across splits", table, words=[*heads, ""])
    if len(table):
        _print_pairs(console, inspection, _leaks_first(inspection, across))
    console.print()
    if len(inspection.used) > 1 and table.empty:
        _say(console, "Duplicates across splits: none")
    if inspection.dataset.domain.ndim == 1:
        domain = inspection.dataset.domain.numpy()
        elsewhere = found[domain[found["row"]] != domain[found["other"]]]
        _say(console, f"Duplicates of a sample in another domain: {_exact_and_near(elsewhere)}")
        if len(inspection.used) == 1:
            _print_pairs(console, inspection, elsewhere)
    within = found.drop(across.index)
    for name in inspection.used:
        of_split = within[split[within["row"]] == name]
        if len(of_split):
            _say(console, f"Duplicates within {name}: {_exact_and_near(of_split)}")
    _say(console, _definition(inspection, near))


def _exact_and_near(found: pd.DataFrame) -> str:
    exact = int(found["exact"].sum())
    return f"{count(exact)} exact, {count(len(found) - exact)} near"


def _leaks_first(inspection: Inspection, found: pd.DataFrame) -> pd.DataFrame:
    split = inspection.split
    leak = [is_leak(split[row], split[other]) for row, other in zip(found["row"], found["other"], strict=True)]
    return found.iloc[np.argsort(~np.array(leak, dtype=bool), kind="stable")]


def _print_pairs(console: Console, inspection: Inspection, found: pd.DataFrame) -> None:
    pairs = inspection.pairs(found)
    near = pairs["kind"] == "near"
    pairs["kind"] = pairs["kind"].where(~near, "near, " + pairs["bits"].astype(str) + " bits")
    heads = {"split": "split", "id": "sample", "other_split": "in", "other_id": "duplicate of", "kind": "kind"}
    shown = pairs[list(heads)].rename(columns=heads)
    _print(console, "First of them", shown, MOST_PAIRS, "which --out lists", words=list(heads.values()))


def _definition(inspection: Inspection, near: int | None) -> str:
    """Return what is called a duplicate."""
    dataset = inspection.dataset
    if not is_images(dataset):
        same = "the same text, but for white space" if isinstance(dataset.inputs, Texts) else "the same numbers"
        return f"An exact duplicate is {same}; near ones are looked for among image files only"
    same = "An exact duplicate has the same pixels"
    if not isinstance(dataset.inputs, Images):
        return f"{same}; near ones are looked for among image files only"
    if near is None:
        return f"{same}; near ones were not looked for"
    if not can_find_near():
        return f"{same}; {NEAR_NEEDS}"
    without = sum(sample.digest is not None and sample.grey is None for sample in inspection.prints)
    small = f"; {count(without)} flat or smaller than {LEAST_SIDE} pixels are compared exactly only" if without else ""
    return (
        f"{same}; hashes of near ones differ in {near} of 64 bits or fewer, and small grey images of them correlate by "
        f"{LIKENESS} or more{small}"
    )


def _print_examples(console: Console, inspection: Inspection) -> None:
    texts, target = inspection.dataset.inputs, inspection.dataset.target.numpy()
    assert isinstance(texts, Texts)
    rng = np.random.default_rng(0)
    groups = {"": np.flatnonzero(inspection.labelled)}
    if inspection.class_names:
        of_class = target == 1 if target.ndim == 2 else target[:, None] == np.arange(len(inspection.class_names))
        groups = {name: np.flatnonzero(of_class[:, number]) for number, name in enumerate(inspection.class_names)}
    rows = []
    for name, members in list(groups.items())[:_FIRST]:
        for row in sorted(rng.choice(members, min(EXAMPLES, len(members)), replace=False).tolist()):
            text = " ".join(texts.text(row).split())
            shown = f"{text[:_TEXT]}…" if len(text) > _TEXT else text
            rows.append([name or inspection.target_of(row), inspection.domain_of(row), shown])
    heads = ["class" if inspection.class_names else "target", "domain", "text"]
    _print(console, "Some texts", pd.DataFrame(rows, columns=heads), words=heads)
