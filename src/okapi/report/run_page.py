"""The page of runs and benchmarks: results, curves, worst groups, confusion, matches and a map in one HTML file."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from okapi import __version__
from okapi.console import working
from okapi.data import check_output, write_text
from okapi.report.confusion import Confusion, read_confusion
from okapi.report.curves import draw_curves
from okapi.report.embedding_map import MOST_POINTS, Map, draw_map
from okapi.report.gallery import MOST_QUERIES, Gallery, make_gallery
from okapi.report.matched import Encoded, Matched, encode_run, match_encoded
from okapi.report.matched_figures import matched_figures
from okapi.report.rendering import as_text, asset, environment, script_hash
from okapi.report.run_tables import PageTable, about_split, benchmark_table, chosen_split, group_tables, runs_table
from okapi.report.runs import Gathered, RunRecord, gather, read_record
from okapi.report.terminal import count, share
from okapi.training.errors import RunError

MOST_BYTES = 5_000_000
SAMPLES = 2000
_MOST_DIRECTIONS = 6  # whose match precision is written out
SEALED = "Samples are of train, unlabelled, id_val and ood_val; test splits stay sealed."


@dataclass(frozen=True, eq=False)
class Looked:
    """What a look into a run's data and model has found: encodings, and matches or why there are none."""

    encoded: Encoded
    matched: Matched | str
    figures: list[tuple[str, Markup]]


def write_report(
    folders: Sequence[Path],
    out: Path,
    *,
    run: Path | None = None,
    samples: int = SAMPLES,
    overrides: Sequence[tuple[str, str]] = (),
) -> None:
    """Write one page about some runs: a self-contained HTML file below 5 MB, there as a whole or not at all.

    Parameters
    ----------
    folders : sequence of Path
        Run directories, folders of benchmarks, or folders of run directories.
    out : Path
        The file, ``.html``.
    run : Path, optional
        The run whose matches and map are shown; by default the first finished one of the algorithm okapi, or else the
        first finished one.
    samples : int
        How many of its samples are encoded, at most; 0: none, the page has no matches and no map.
    overrides : sequence of (key, text)
        Where its data is, if it was moved: ``("data.root", "/elsewhere")``.
    """
    check_output(out, [".html", ".htm"])
    if samples < 0:
        raise ValueError(f"samples must be at least 0, got {samples}")
    with working("Reading runs") as now:
        gathered = gather(folders)
        shown = choose_run(gathered, run)
        looked: Looked | str | None = None
        if shown is not None and samples:
            now(f"Encoding samples of {shown.path}")
            looked = look_into(shown, samples, overrides)
        now("Making the page")
        write_text(out, report_page(gathered, shown, looked))


def choose_run(gathered: Gathered, wanted: Path | None = None) -> RunRecord | None:
    """Return the run whose matches are shown; None if none is finished, unless one was asked for."""
    if wanted is not None:
        same = [record for record in gathered.runs if record.path.resolve() == wanted.resolve()]
        record = same[0] if same else read_record(wanted)
        if not record.is_finished:
            reason = record.run.reason or f"{wanted} has no results.json: the run is not finished"
            raise ValueError(f"run must be a finished run: {reason}")
        return record
    finished = [record for record in gathered.runs if record.is_finished]
    ours = [record for record in finished if record.algorithm == "okapi"]
    return next(iter([*ours, *finished]), None)


def look_into(record: RunRecord, samples: int, overrides: Sequence[tuple[str, str]] = ()) -> Looked | str:
    """Return a sample of a run's data, encoded and matched; or why that cannot be done."""
    try:
        encoded = encode_run(record.path, samples, overrides)
        matched = match_encoded(encoded)
    except (ValueError, OSError, RuntimeError, RunError, ImportError) as error:
        return " ".join(str(error).split())[:600]
    return Looked(encoded, matched, matched_figures(encoded, matched) if isinstance(matched, Matched) else [])


def report_page(
    gathered: Gathered,
    shown: RunRecord | None = None,
    looked: Looked | str | None = None,
    *,
    refresh: int | None = None,
    progress: str | None = None,
) -> str:
    """Return the page; where it would be too large, with fewer matches and points, and it says so.

    Parameters
    ----------
    gathered : Gathered
    shown : RunRecord, optional
        The run whose groups, confusion, matches and map are shown.
    looked : Looked or str, optional
        What is known of its matches, or why nothing is.
    refresh : int, optional
        Seconds after which a browser loads the page again.
    progress : str, optional
        How far a run is that goes on.
    """
    common = _common(gathered, shown, looked, progress) | {"refresh": refresh}
    queries, points = MOST_QUERIES, MOST_POINTS
    while True:
        page = _render(common, looked, queries, points)
        if len(page.encode()) < MOST_BYTES or points < 10:
            return page
        queries, points = queries // 2, min(points, len(looked.encoded.rows) if isinstance(looked, Looked) else 0) // 2


def _common(
    gathered: Gathered, shown: RunRecord | None, looked: Looked | str | None, progress: str | None
) -> dict[str, Any]:
    """Return what a page has, but for matches and map."""
    split = None if shown is None else chosen_split(shown)
    groups: list[PageTable] = []
    confusion: Confusion | None = None
    if shown is not None and split is not None:
        groups, confusion = group_tables(gathered.runs, shown, split), read_confusion(shown, split)
        for table in groups:
            table.about.insert(0, about_split(shown, split))
    notes = list(gathered.notes)
    if shown is not None and split is None and progress is None:
        notes.append(
            f"No split of {shown.name} has been evaluated, so that worst groups and confusion are missing: "
            f"okapi evaluate {shown.path} --split ood_val"
        )
    if shown is not None and isinstance(looked, str):
        notes.append(f"Matches and map of {shown.name} are missing: {looked}")
    if isinstance(looked, Looked):
        notes += looked.encoded.notes
        notes += [looked.matched] if isinstance(looked.matched, str) else looked.matched.notes
    curves = draw_curves(gathered.runs, gathered.methods)
    drawn = [record for record in gathered.runs if record.method and len(record.metrics)]
    return {
        "title": _title(gathered),
        "kicker": "training" if not gathered.benchmarks else "benchmark",
        "facts": _facts(gathered, shown, split, progress),
        "notes": notes,
        "results": _results(gathered),
        "curves": curves,
        "several": len(drawn) > len({record.method for record in drawn}),
        "groups": groups,
        "confusion": confusion,
        "confusion_about": about_split(shown, split) if shown is not None and split is not None else "",
        "settings": _settings(gathered, shown, looked),
    }


def _render(common: dict[str, Any], looked: Looked | str | None, queries: int, points: int) -> str:
    gallery: Gallery | None = None
    drawn: Map | None = None
    texts: dict[str, Any] = {}
    styles = [asset("match.css"), asset("runs.css")]
    if isinstance(looked, Looked):
        drawn = draw_map(looked.encoded, points)
        styles.append(drawn.style)
        texts["map_about"] = _about_map(drawn)
        if isinstance(looked.matched, Matched):
            gallery = make_gallery(looked.encoded, looked.matched, queries)
            texts |= _about_matches(looked.encoded, looked.matched, gallery)
    script = asset("runs.js") if gallery or drawn else ""
    values = common | texts | {"facts": {label: as_text(value) for label, value in common["facts"].items()}}
    if gallery and gallery.precision.overall["pairs"]:
        values["facts"] |= _precision_fact(gallery)
    return environment().get_template("runs.html.jinja").render(
        **values,
        figures=looked.figures if isinstance(looked, Looked) else [],
        gallery=gallery,
        marked=gallery is not None and gallery.marked,
        unknown=gallery is not None and any(query.agreement == "unknown" for query in gallery.queries),
        map=drawn,
        script=Markup(script),
        script_hash=script_hash(script) if script else "",
        style=Markup("\n".join(styles)),
    )  # fmt: skip


def _title(gathered: Gathered) -> str:
    if gathered.benchmarks:
        names = [results.out.resolve().name for results in gathered.benchmarks]
        return f"Benchmark {names[0]}" if len(names) == 1 else f"Benchmarks {', '.join(names)}"
    if len(gathered.runs) == 1:
        return f"Run {gathered.runs[0].name}"
    return f"{len(gathered.runs)} runs"


def _facts(gathered: Gathered, shown: RunRecord | None, split: str | None, progress: str | None) -> dict[str, object]:
    facts: dict[str, object] = {}
    if progress:
        facts["training"] = progress
    finished = sum(record.is_finished for record in gathered.runs)
    facts["runs"] = f"{finished} of {len(gathered.runs)} finished" if finished < len(gathered.runs) else finished
    if len(gathered.methods) > 1:
        facts["methods"] = len(gathered.methods)
    if shown is not None and shown.metric:
        figures = shown.run.figures
        where = split or next((name for name in ("ood_val", "id_val") if name in figures), "")
        value = figures.get(where, {}).get(shown.metric)
        if value is not None:
            facts[f"{shown.metric.replace('_', ' ')} on {where}, {shown.name}"] = f"{value:.4f}"
    return facts


def _results(gathered: Gathered) -> list[PageTable]:
    tables = []
    for number, results in enumerate(gathered.benchmarks):
        called = f" of {results.out.resolve().name}" if len(gathered.benchmarks) > 1 else ""
        tables.append(benchmark_table(2 * number, results.table(), f"Results{called}"))
        if energy := results.energy():
            tables.append(benchmark_table(2 * number + 1, energy, f"Energy{called}"))
    return [*tables, runs_table(gathered.runs)]


def _settings(gathered: Gathered, shown: RunRecord | None, looked: Looked | str | None) -> dict[str, str]:
    """Return what the page was made with and the config of the run shown."""
    settings: dict[str, object] = {"made": time.strftime("%Y-%m-%d %H:%M"), "Okapi": __version__}
    if isinstance(looked, Looked):
        settings |= {"samples encoded": len(looked.encoded.rows)}
    record = shown or (gathered.runs[0] if gathered.runs else None)
    if record is not None:
        settings["run"] = str(record.path)
        for section, its in record.config.items():
            inner = its.items() if isinstance(its, dict) else [("", its)]
            settings |= {f"{section}.{key}".rstrip("."): value for key, value in inner}
    return {label: as_text(value)[:200] for label, value in settings.items()}


def _about_matches(encoded: Encoded, matched: Matched, gallery: Gallery) -> dict[str, str]:
    rate = share(gallery.matched / max(1, gallery.asked))
    pairs = f"{count(gallery.matched)} of {count(gallery.asked)} queries are matched ({rate})"
    used = {**vars(matched.settings), "temperature": matched.temperature}
    made = ", ".join(f"{name.replace('_', ' ')} {as_text(value)}" for name, value in used.items() if value)
    domains = (
        " and ".join(matched.domain_names) if len(matched.domain_names) == 2 else f"{len(matched.domain_names)} domains"
    )
    matching = f"Encodings of {count(len(matched.pool))} samples matched across {domains}: {made}. {pairs}. {SEALED}"
    some = (
        f"{len(gallery.queries)} of {count(gallery.matched)} matched queries, drawn in turn from domains and classes."
    )
    agree = _about_precision(gallery)
    if not gallery.marked:
        return {"matching_about": matching, "gallery_about": f"{some}{agree} Numbers are distances of encodings."}
    hidden = (
        " Labels of unlabelled samples, where the data set has them, serve for these marks only."
        if ("unlabelled" in set(encoded.split.tolist()))
        else ""
    )
    return {
        "matching_about": matching,
        "gallery_about": f"{some}{agree} ✓ is the same class, ✗ another; numbers are distances of encodings.{hidden}",
    }  # fmt: skip


def _precision_fact(gallery: Gallery) -> dict[str, str]:
    """Return the one number about the targets of matches, beside chance."""
    found = gallery.precision
    if found.kind == "regression":
        return {"SD between targets of matches, by chance": f"{found.value:.2f}, {found.chance:.2f}"}
    label = "matches of the same class" if found.kind == "classification" else "equal labels in matches"
    return {f"{label}, by chance": f"{share(found.value)}, {share(found.chance)}"}


def _about_precision(gallery: Gallery) -> str:
    """Return how far the targets of matches agree, direction by direction where there are few."""
    found = gallery.precision
    if not found.overall["pairs"]:
        return ""
    name, chance = ("difference_sd", "chance_sd") if found.kind == "regression" else ("precision", "chance")
    known = f"the {count(found.overall['pairs'])} matches with known labels"
    if found.kind == "regression":
        text = f"The targets of {known} are {found.value:.2f} standard deviations apart, {found.chance:.2f} by chance"
    elif found.kind == "classification":
        text = f"{share(found.value)} of {known} are of the same class, {share(found.chance)} by chance"
    else:
        text = f"{share(found.value)} of the labels in {known} are equal, {share(found.chance)} by chance"
    table = found.table[found.table.pairs > 0]
    if not 1 < len(table) <= _MOST_DIRECTIONS:
        return f" {text}."
    said = (lambda value: f"{value:.2f}") if found.kind == "regression" else share
    parts = [
        f"{row['query_domain']} → {row['key_domain']} {said(row[name])} ({said(row[chance])})"
        for row in table.to_dict("records")
    ]
    return f" {text}: {', '.join(parts)}."


def _about_map(drawn: Map) -> str:
    left = f" of {count(drawn.samples)} that were encoded" if drawn.shown < drawn.samples else ""
    return f"Encodings of {count(drawn.shown)} samples{left} in two dimensions. {SEALED}"
