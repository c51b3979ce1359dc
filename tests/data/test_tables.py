import gzip
import io
import signal
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from okapi.data import TableError, check_output, read_table, write_frame, write_text
from okapi.data import tables as module
from okapi.data.io import open_table, write_files

SITES = np.array(["rome", "oslo", "rome", "oslo"])


def csv(folder: Path, text: str | bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# What comes back is what was saved


@st.composite
def samples(draw: st.DrawFn, dtype: type = np.float64) -> tuple[np.ndarray, list[str]]:
    rows, width = draw(st.integers(2, 12)), draw(st.integers(1, 5))
    finite = st.floats(allow_nan=False, allow_infinity=False, width=np.dtype(dtype).itemsize * 8)
    X = draw(arrays(dtype, (rows, width), elements=finite))
    text = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1)
    domain = draw(st.lists(text, min_size=rows, max_size=rows).filter(lambda found: len(set(found)) > 1))
    return X, domain


@settings(max_examples=50, deadline=None)
@given(samples(), st.sampled_from(["csv", "csv.gz"]))
def test_csv_round_trip(tmp_path_factory: pytest.TempPathFactory, saved: tuple[np.ndarray, list[str]], suffix: str):
    X, domain = saved
    path = tmp_path_factory.mktemp("csv") / f"table.{suffix}"
    pd.DataFrame(X).add_prefix("x").assign(site=domain).to_csv(path, index=False)
    table = read_table(path, domain="site", columns=["x*"])
    np.testing.assert_array_equal(table.X, X)
    assert list(map(str, table.domain)) == domain


@settings(max_examples=50, deadline=None)
@given(samples(np.float32), st.booleans())
def test_parquet_round_trip(tmp_path_factory: pytest.TempPathFactory, saved: tuple[np.ndarray, list[str]], fixed: bool):
    X, domain = saved
    path = tmp_path_factory.mktemp("parquet") / "table.parquet"
    lists = pa.array(X.tolist(), pa.list_(pa.float32(), X.shape[1] if fixed else -1))
    scalars = {f"x{i}": X[:, i] for i in range(X.shape[1])}
    pq.write_table(pa.table({"site": domain, **scalars, "e": lists}), path, row_group_size=3)
    table = read_table(path, domain="site", columns=[*scalars, "e"])
    np.testing.assert_array_equal(table.X, np.hstack([X, X]))
    assert table.X.dtype == np.float32
    assert table.names == (*scalars, *(f"e_{i}" for i in range(X.shape[1])))
    assert table.domain.tolist() == domain


@settings(max_examples=50, deadline=None)
@given(samples(np.float32), st.sampled_from([np.savez, np.savez_compressed]), st.sampled_from("CF"))
def test_npz_round_trip(tmp_path_factory, saved, save, order):
    X, domain = saved
    domain = [f"{name}." for name in domain]  # numpy drops trailing NULs of a str
    path = tmp_path_factory.mktemp("npz") / "table.npz"
    save(path, X=np.asarray(X, order=order), site=np.array(domain), y=np.arange(len(X)))
    table = read_table(path, domain="site")
    np.testing.assert_array_equal(table.X, X)
    assert isinstance(table.X, np.memmap) == (save is np.savez)
    assert table.domain.tolist() == domain
    assert table.left_out == ("y",)


# Roles


def test_roles_of_columns(tmp_path: Path):
    text = "name,site,age,sex,p,picture,y,ward\n" + "".join(
        f"0{i},{'ab'[i % 2]},{i},{'mf'[i // 2 % 2]},0.{i},{i}.png,{i},w{i % 3}\n" for i in range(8)
    )
    table = read_table(
        csv(tmp_path, text), domain="site", id="name", image="picture", propensity="p", exact=["ward"], target="y"
    )
    assert table.names == ("age", "sex")
    assert isinstance(table.X, pd.DataFrame)
    assert table.X["age"].tolist() == list(range(8))
    assert table.X["sex"].tolist() == list("mmffmmff")
    assert isinstance(table.X["sex"].dtype, pd.CategoricalDtype)
    assert table.ids is not None
    assert table.ids[1] == "01"
    assert table.images is not None
    assert table.images[3] == str(tmp_path / "3.png")
    assert table.propensity is not None
    assert table.propensity.tolist() == pytest.approx([i / 10 for i in range(8)])
    assert table.exact is not None
    assert table.exact["ward"].tolist() == ["w0", "w1", "w2", "w0", "w1", "w2", "w0", "w1"]
    assert len(table) == 8


def test_several_propensities_are_a_matrix(tmp_path: Path):
    np.savez(tmp_path / "t.npz", X=np.ones((4, 2)), e=np.full((4, 3), 1 / 3), site=SITES)
    assert read_table(tmp_path / "t.npz", domain="site", propensity="e").propensity.shape == (4, 3)
    path = csv(tmp_path, "site,x,p,q\na,1,.2,.8\nb,2,.3,.7\n")
    assert read_table(path, domain="site", propensity=["p", "q"]).propensity.tolist() == [[0.2, 0.8], [0.3, 0.7]]


@pytest.mark.parametrize(("distinct", "rows", "covariate"), [(20, 50, True), (21, 50, False), (5, 10, False)])
def test_csv_text_is_categories_if_it_has_few_values(tmp_path: Path, distinct: int, rows: int, covariate: bool):
    text = "site,x,word\n" + "".join(f"{'ab'[i % 2]},{i % 7},w{i % distinct}\n" for i in range(rows))
    table = read_table(csv(tmp_path, text), domain="site")
    assert ("word" in table.names, "word" in table.left_out) == (covariate, not covariate)
    assert "word" in read_table(csv(tmp_path, text), domain="site", columns=["word"]).names


def test_csv_leaves_out_the_index_dates_and_constant_text(tmp_path: Path):
    text = ",site,x,when,same\n0,a,1,2020-01-01,k\n1,b,2,2020-01-02,k\n2,b,2,2020-01-02,k\n"
    table = read_table(csv(tmp_path, text), domain="site")
    assert (table.names, table.left_out) == (("x",), ("when", "same"))


def test_csv_reads_na_as_a_name_and_keeps_leading_zeros(tmp_path: Path):
    table = read_table(csv(tmp_path, "country,id,x\nNA,01,1\nDE,1,2\n"), domain="country", id="id")
    assert table.domain.tolist() == ["NA", "DE"]
    assert table.ids.tolist() == ["01", "1"]
    assert read_table(csv(tmp_path, "country,x\n7,1\n-8,2\n"), domain="country").domain.tolist() == [7, -8]


def test_columns_choose_and_order_covariates(tmp_path: Path):
    np.savez(tmp_path / "t.npz", X=np.ones((4, 2)), Z=np.zeros((4, 1)), age=np.arange(4), site=SITES)
    table = read_table(tmp_path / "t.npz", domain="site", columns=["age", "Z"])
    assert table.names == ("age", "Z_0")
    np.testing.assert_array_equal(table.X, [[0, 0], [1, 0], [2, 0], [3, 0]])


def test_parquet_reads_categories_booleans_and_half_floats(tmp_path: Path):
    half = pa.array(np.arange(4, dtype=np.float16))
    columns = {"site": SITES, "flag": [True, False, True, False], "half": half, "word": list("abab")}
    kind = pa.array(list("uvuv")).dictionary_encode()
    pq.write_table(pa.table({**columns, "kind": kind, "free": list("wxyz")}), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet", domain="site", columns=["flag", "half"])
    assert table.X.dtype == np.float32
    np.testing.assert_array_equal(table.X, [[1, 0], [0, 1], [1, 2], [0, 3]])
    table = read_table(tmp_path / "t.parquet", domain="site")
    assert table.names == ("flag", "half", "kind")
    assert table.left_out == ("word", "free")


# What is refused: the message names the file, the row and the column

CSV_ERRORS = {
    "site,x\na,1\nb,\n": r"row 2, column 'x' is missing",
    "site,x\na,1\nb,2\na,1;5\n": r"row 3, column 'x': '1;5' is not a finite number",
    "site,x\na,1\nb,inf\n": r"row 2, column 'x' is inf",
    "site,x\na,nan\nb,1\n": r"row 1, column 'x' is missing",
    "site,x\na,1\n,2\n": r"row 2, column 'site' is missing",
    "site,x\na,1\nb,2,3\n": r"row 2 has 3 cells, the header 2",
    "site,x\na,1\nb\n": r"row 2 has 1 cells, the header 2",
    "site,x\na,1\na,2\n": r"every row of 'site' is 'a'",
    "site,x,x\na,1,2\nb,1,2\n": r"more than one column named 'x'",
    "site,sex,x\n" + "a,m,1\nb,f,2\n" * 3 + "a,,1\n": r"row 7, column 'sex' is missing",
    "site,x\n": "has no rows",
    "": "is empty",
    "\n\n": "cannot be read",
    "site\na\nb\n": "no column to match on",
    "Site,x\na,1\n": r"has no column 'site'; did you mean Site\? It has 'Site', 'x'",
}


@pytest.mark.parametrize("text", CSV_ERRORS)
def test_csv_errors_name_the_place(tmp_path: Path, text: str):
    with pytest.raises(TableError, match=CSV_ERRORS[text]) as caught:
        read_table(csv(tmp_path, text), domain="site")
    assert str(tmp_path / "table.csv") in str(caught.value)


def test_duplicate_ids_and_columns_with_two_roles(tmp_path: Path):
    path = csv(tmp_path, "site,id,x,word\na,7,1,u\nb,8,2,v\nb,7,3,u\n")
    with pytest.raises(TableError, match="row 3, column 'id': '7' was there before"):
        read_table(path, domain="site", id="id")
    with pytest.raises(TableError, match="cannot be both"):
        read_table(path, domain="site", columns=["x", "site"])
    with pytest.raises(TableError, match="'word' does not hold numbers"):
        read_table(path, domain="site", propensity="word")


def test_files_that_are_not_tables(tmp_path: Path):
    (tmp_path / "folder.csv").mkdir()
    for name, words in {
        "folder.csv": "is a directory",
        "none.csv": "does not exist",
        "t.txt": "cannot read '.txt'",
    }.items():
        with pytest.raises(TableError, match=words):
            read_table(tmp_path / name, domain="site")
    for name in ("t.parquet", "t.npz", "t.csv.gz"):
        with pytest.raises(TableError, match=f"{name} cannot be read"):
            read_table(csv(tmp_path, "not this", name), domain="site")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"site,x\na,1\n\xff,2\n", "row 2, column 'site' is not UTF-8"),
        (b"site,gr\xf6\na,1\nb,2\n", "the name of column 2 is not UTF-8, it holds the byte 0xf6"),
        (b"site,x\na,1\nb,2\n\xff,2,3\n", "row 3 has 3 cells, the header 2"),
        (b"\xe8\x00\xff" * 1000, "the name of column 1 is not UTF-8"),
    ],
)
def test_csv_of_another_encoding_or_mark_is_named_in_a_line(tmp_path: Path, capsys, text: bytes, words: str):
    with pytest.raises(TableError, match=words) as caught:
        read_table(csv(tmp_path, text), domain="site")
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().err == ""


def test_csv_header_with_a_mark_quotes_and_line_breaks(tmp_path: Path):
    text = '\ufeff\r\n"",site,"a, b","c\nd"\r\n0,u,1,2\r\n1,v,3,4\r\n'
    assert read_table(csv(tmp_path, text.replace("\r\n", "", 1)), domain="site").names == ("a, b", "c\nd")


def test_a_process_that_refuses_a_csv_ends_in_order_on_one_processor(tmp_path: Path):
    path = csv(tmp_path, "site,x\n" + "a,1\nb,2\n" * 100_000)
    program = (
        "import os, sys\nos.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "from pathlib import Path\nfrom okapi.data.io import open_table\nopen_table(Path(sys.argv[1]))"
    )
    for _ in range(4):
        subprocess.run([sys.executable, "-c", program, str(path)], check=True, capture_output=True)


@pytest.mark.parametrize("name", ["t.parquet", "t.npz", "t.csv.gz"])
@pytest.mark.parametrize("kept", [0.3, 0.7, 0.99])
def test_truncated_files(tmp_path: Path, name: str, kept: float):
    path, X = tmp_path / name, np.random.default_rng(0).normal(size=(4, 300))
    if name.endswith("npz"):
        np.savez_compressed(path, X=X, site=SITES)
    else:
        frame = pd.DataFrame(X).add_prefix("x").assign(site=SITES)
        frame.to_parquet(path) if name.endswith("parquet") else frame.to_csv(path)
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    with pytest.raises(TableError, match="cannot be read"):
        read_table(path, domain="site")


def test_parquet_errors_name_the_place(tmp_path: Path):
    path = tmp_path / "t.parquet"
    bad: dict[str, tuple[object, str]] = {
        "e": ([[1.0, 2.0], [1.0, 2.0], [1.0], [1.0, 2.0]], "row 3, column 'e' holds 1 values, the first row 2"),
        "x": ([1.0, None, 1.0, 1.0], "row 2, column 'x' is missing"),
        "n": ([1, 1, 1, None], "row 4, column 'n' is missing"),
        "flag": ([True, None, True, True], "row 2, column 'flag' is missing"),
        "word": (pa.array(["a", None, "a", "b"]).dictionary_encode(), "row 2, column 'word' is missing"),
        "empty": (pa.array([[], [], [], []], pa.list_(pa.float32())), "holds no values"),
    }
    for name, (values, words) in bad.items():
        pq.write_table(pa.table({"site": SITES, name: values}), path, row_group_size=2)
        with pytest.raises(TableError, match=words):
            read_table(path, domain="site")
    with pytest.raises(TableError, match="holds lists"):
        read_table(path, domain="empty")
    pq.write_table(pa.table({"site": SITES, "when": pa.array([1, 2, 3, 4], pa.timestamp("s"))}), path)
    with pytest.raises(TableError, match="'when' holds dates, not numbers: leave it out"):
        read_table(path, domain="site", columns=["when"])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_errors_name_the_array(tmp_path: Path, save):
    path, X = tmp_path / "t.npz", np.ones((4, 2))
    cases = [
        ({"X": X, "site": SITES[:3]}, "array 'X' has 4 rows, the domain has 3"),
        ({"X": X, "Z": X, "site": SITES}, "several 2-D arrays, 'X', 'Z': choose by columns"),
        ({"X": X, "site": SITES.astype(object)}, "array 'site' holds pickled objects"),
        ({"X": X, "site": X}, r"array 'site' has shape \(4, 2\), one value a row"),
        ({"X": np.where(np.eye(4, 2), np.nan, 1), "site": SITES}, "row 1, column 'X_0' is missing"),
        ({"X": X[:0], "site": SITES[:0]}, "has no rows"),
        ({"X": X[:, :0], "site": SITES}, "holds no values"),
    ]
    for saved, words in cases:
        save(path, **saved)
        with pytest.raises(TableError, match=words):
            read_table(path, domain="site")


# Memory


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.npz"])
def test_a_table_that_does_not_fit_is_refused_before_it_is_read(tmp_path: Path, monkeypatch, name: str):
    path, X = tmp_path / name, np.ones((1000, 50))
    site = np.where(np.arange(1000) % 2, "rome", "oslo")
    if name == "t.npz":
        np.savez_compressed(path, X=X, site=site)
    else:
        write_frame(pd.DataFrame(X).add_prefix("x").assign(site=site), path)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=300_000))
    with pytest.raises(TableError, match=r"needs about .* GB of memory, 0.0 GB are available: choose fewer columns"):
        read_table(path, domain="site")
    if name == "t.parquet":
        assert read_table(path, domain="site", columns=["x0"]).X.shape == (1000, 1)


def test_ten_gigabytes_open_at_once_and_take_no_memory(tmp_path: Path):
    rows, width = 1_300_000, 2048
    path = tmp_path / "large.npz"
    sparse_npz(path, rows, width)
    assert path.stat().st_size > 10e9
    assert path.stat().st_blocks * 512 < 20e6
    read_table(small_npz(tmp_path), domain="site")  # what the first call imports is not counted
    process = psutil.Process()
    before, start = process.memory_info().rss, time.perf_counter()
    table = read_table(path, domain="site")
    seconds, grown = time.perf_counter() - start, process.memory_info().rss - before
    assert table.X.shape == (rows, width)
    assert table.X[rows - 1, width - 1] == 0
    assert seconds < 1
    assert grown < 50e6


def test_a_large_map_is_checked_on_request(tmp_path: Path, monkeypatch):
    X = np.ones((4, 2))
    X[2, 1] = np.inf
    np.savez(tmp_path / "t.npz", X=X, site=SITES)
    monkeypatch.setattr(module, "_CHECKED_ON_OPENING", 8)
    table = read_table(tmp_path / "t.npz", domain="site")
    with pytest.raises(TableError, match="row 3, column 'X_1' is inf"):
        table.check_finite()


def small_npz(folder: Path) -> Path:
    np.savez(folder / "small.npz", X=np.ones((4, 2)), site=SITES)
    return folder / "small.npz"


def sparse_npz(path: Path, rows: int, width: int) -> None:
    """Write an uncompressed npz (zip64) whose X is zeros that take no disk."""

    def npy_header(shape: tuple[int, ...], descr: str) -> bytes:
        file = io.BytesIO()
        np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": descr})
        return file.getvalue()

    site = (np.arange(rows) % 3).astype(np.int8)
    members = [
        (b"X.npy", npy_header((rows, width), "<f4"), 4 * rows * width),
        (b"site.npy", npy_header((rows,), "|i1") + site.tobytes(), 0),
    ]
    directory = b""
    with path.open("wb") as file:
        for name, data, zeros in members:
            start, size = file.tell(), len(data) + zeros
            sizes = struct.pack("<HHQQ", 1, 16, size, size)
            common = struct.pack("<HHHHHIIIHH", 45, 0, 0, 0, 33, 0, 2**32 - 1, 2**32 - 1, len(name), 20)
            file.write(b"PK\3\4" + common + name + sizes + data)
            file.seek(zeros, io.SEEK_CUR)
            extra = struct.pack("<HHQQQ", 1, 24, size, size, start)
            common = common[:-2] + struct.pack("<HHHHII", len(extra), 0, 0, 0, 0, 2**32 - 1)
            directory += b"PK\1\2" + struct.pack("<H", 45) + common + name + extra
        where = file.tell()
        end = struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 2, 2, len(directory), where)
        locator = struct.pack("<IQI", 0, where + len(directory), 1)
        file.write(directory + b"PK\6\6" + end + b"PK\6\7" + locator)
        file.write(b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 2, 2, len(directory), 2**32 - 1, 0))
    assert zipfile.is_zipfile(path)


# Writing


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_write_frame(tmp_path: Path, name: str):
    frame = pd.DataFrame({"query": [0, 1], "distance": [0.1, 1 / 3]})
    write_frame(frame, tmp_path / name)
    read = pd.read_parquet if name.endswith("parquet") else pd.read_csv
    pd.testing.assert_frame_equal(read(tmp_path / name), frame)
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, MemoryError])
@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch, error, name):
    (tmp_path / name).write_text("old")

    def half(self, path, index):
        Path(path).write_text("half")
        raise error

    monkeypatch.setattr(pd.DataFrame, "to_csv", half)
    monkeypatch.setattr(pd.DataFrame, "to_parquet", half)
    with pytest.raises(error):
        write_frame(pd.DataFrame({"a": [1]}), tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "old"


def test_of_several_files_all_are_written_or_none(tmp_path: Path):
    frame = pd.DataFrame({"a": [1]})
    missing = tmp_path / "no" / "page.html"
    with pytest.raises(OSError, match=r"no/page\.html cannot be written: No such file or directory") as caught:
        write_files({tmp_path / "out.csv": frame, missing: "page"})
    assert "/." not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    write_files({tmp_path / "out.csv": frame, tmp_path / "page.html": "page"})
    assert {file.name for file in tmp_path.iterdir()} == {"out.csv", "page.html"}


def test_a_full_disk_is_said_of_the_file_that_is_wanted(tmp_path: Path):
    resource = pytest.importorskip("resource")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match=r"page\.html cannot be written: File too large"):
            write_text(tmp_path / "page.html", "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


def test_write_text_replaces(tmp_path: Path):
    for text in ("old", "new: ü\u2028"):
        write_text(tmp_path / "page.html", text)
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == "new: ü\u2028"
    assert len(list(tmp_path.iterdir())) == 1


def test_check_output(tmp_path: Path):
    (tmp_path / "folder.csv").mkdir()
    assert check_output(str(tmp_path / "a.csv")) == tmp_path / "a.csv"
    assert check_output(tmp_path / "a.html", suffixes=[".html"])
    for name, words in {
        "a.txt": "cannot write '.txt'",
        "no/a.csv": "does not exist",
        "folder.csv": "directory",
    }.items():
        with pytest.raises(TableError, match=words):
            check_output(tmp_path / name)


def test_gzip_is_read_by_suffix(tmp_path: Path):
    path = csv(tmp_path, gzip.compress(b"\xef\xbb\xbfsite,x\na,1\nb,2\n"), "t.csv.gz")
    assert read_table(path, domain="site").X.tolist() == [[1], [2]]


# Every format


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """Draw columns of numbers, booleans and categories, with missing numbers; names and texts hold separators."""
    rows = draw(st.integers(2, 12))
    names = draw(st.lists(st.text("ab;,|\t_ 1", min_size=1).filter(str.strip), min_size=3, max_size=3, unique=True))
    number = st.floats(allow_nan=False, allow_infinity=False) | st.just(np.nan)
    x = draw(st.lists(number, min_size=rows, max_size=rows))
    flag = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    word = draw(st.lists(st.sampled_from(["a,b", "c;d", 'e"f', "g|h", "i\tj", "NA"]), min_size=rows, max_size=rows))
    return pd.DataFrame(dict(zip(names, (x, flag, word), strict=True))).assign(last=range(rows))


@settings(max_examples=50, deadline=None)
@given(frames(), st.sampled_from([",", ";", "\t", "|"]), st.booleans())
def test_the_same_table_comes_back_from_every_format(tmp_path_factory, frame: pd.DataFrame, mark: str, named: bool):
    folder = tmp_path_factory.mktemp("table")
    frame.to_csv(folder / "t.csv", sep=mark, index=False)
    frame.to_csv(folder / "t.csv.gz", sep=mark, index=False)
    frame.to_csv(folder / "t.tsv", sep="\t", index=False)
    frame.to_parquet(folder / "t.parquet", row_group_size=3)
    frame.to_feather(folder / "t.feather")
    with zipfile.ZipFile(folder / "t.npz", "w") as archive:  # numpy's own takes no name such as "file"
        for name in frame:
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.array(frame[name].tolist()))
    x, flag, word, last = frame
    for path in folder.iterdir():
        file = open_table(path, mark if named and path.name.startswith("t.csv") else None)
        assert file.columns == list(frame)
        X, names = file.numbers([last, x, flag])
        assert names == [last, x, flag]
        np.testing.assert_array_equal(X, frame[names].astype(float))
        assert file.labels([word])[word].tolist() == frame[word].tolist()
        kinds = file.kinds([last, x, flag])
        assert (kinds[last], kinds[flag]) == ("number", "boolean")
        assert kinds[x] == "number" or frame[x].isna().all()


def test_columns_by_pattern_by_range_and_all(tmp_path: Path):
    frame = pd.DataFrame({"id": list("abcd"), "e_0": 1.0, "e_1": 2.0, "e_10": 3.0, "y": [0, 1, 0, 1]})
    frame.assign(site=SITES, day="2020-01-31", note=[f"n{i}" for i in range(4)]).to_csv(tmp_path / "t.csv", index=False)
    for wanted, names in {
        ("e_*",): ("e_0", "e_1", "e_10"),
        ("e_{0..1}", "y"): ("e_0", "e_1", "y"),
        ("*_1", "e_*"): ("e_1", "e_0", "e_10"),
        ("all",): ("e_0", "e_1", "e_10", "y"),
    }.items():
        assert read_table(tmp_path / "t.csv", domain="site", columns=wanted).names == names
    for wanted, words in {
        "p_*": "has no column like 'p_\\*'",
        "e_{0..2}": "has no column 'e_2'; did you mean e_",
        "day": "'day' holds dates, not numbers: leave it out, or save what matters of it",
    }.items():
        with pytest.raises(TableError, match=words):
            read_table(tmp_path / "t.csv", domain="site", columns=[wanted])


def test_missing_numbers_have_words_and_names_have_none(tmp_path: Path):
    file = open_table(csv(tmp_path, "country|x|y\nNA|1|true\nDE|NA|\nNA|.|false\nFR|2.5|true\n"))
    assert file.kinds(["x", "y"]) == {"x": "number", "y": "boolean"}
    np.testing.assert_array_equal(file.numbers(["x", "y"])[0], [[1, 1], [np.nan, np.nan], [np.nan, 0], [2.5, 1]])
    assert file.labels(["country"])["country"].tolist() == ["NA", "DE", "NA", "FR"]


def test_lists_may_be_missing_and_embeddings_keep_their_precision(tmp_path: Path):
    e = pa.array([None, [1.5, 2.5], None, [3.5, 4.5]], pa.list_(pa.float32()))
    pq.write_table(pa.table({"site": SITES, "e": e}), tmp_path / "t.parquet", row_group_size=1)
    X, names = open_table(tmp_path / "t.parquet").numbers(["e"])
    assert (X.dtype, names) == (np.float32, ["e_0", "e_1"])
    np.testing.assert_array_equal(X, [[np.nan] * 2, [1.5, 2.5], [np.nan] * 2, [3.5, 4.5]])
    with pytest.raises(TableError, match="row 1, column 'e_0' is missing"):
        read_table(tmp_path / "t.parquet", domain="site")


def test_xlsx_is_read_with_openpyxl_and_named_without(tmp_path: Path):
    frame = pd.DataFrame({"site": SITES, "x": [1.5, 2, 3, 4], "flag": [True, False, True, True]})
    try:
        frame.to_excel(tmp_path / "t.xlsx", index=False)
    except ImportError:
        csv(tmp_path, "anything", "t.xlsx")
        with pytest.raises(
            TableError, match=r"t\.xlsx: xlsx needs openpyxl, which is not installed: pip install 'okapi-ssl\[excel"
        ):
            open_table(tmp_path / "t.xlsx")
        return
    np.testing.assert_array_equal(open_table(tmp_path / "t.xlsx").numbers(["x", "flag"])[0][:, 0], frame["x"])


PATIENTS = pd.DataFrame(
    {
        "patient": np.arange(1000, 1040),
        "age": np.r_[np.nan, np.tile([40.0, 50, 60], 13)],
        "sex": ["m", None, *37 * ["f"], "m"],
        "zip": np.repeat(["80331", "20095", "10115", "50667"], 10),
        "domain": np.tile(["a", "b"], 20),
        "ward": np.repeat([1, 2], 20),
    }
)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_rows_that_miss_a_covariate_are_rejected_dropped_or_imputed_and_counted(tmp_path: Path, suffix: str):
    path, given = tmp_path / f"patients{suffix}", {"domain": "domain", "exact": ["ward"], "columns": ["age", "sex"]}
    write_frame(PATIENTS, path)
    with pytest.raises(TableError, match=r"row 1, column 'age' is missing"):
        read_table(path, **given)
    with pytest.raises(TableError, match=r"row 2, column 'sex' is missing"):
        read_table(path, **given | {"columns": ["sex"]})
    table = read_table(path, **given, id="patient", missing="drop")
    assert (len(table), len(table.X), table.dropped) == (38, 38, 2)
    assert table.missing == {"age": 1, "sex": 1}
    assert table.ids is not None
    assert table.ids.tolist() == list(range(1002, 1040))
    assert table.exact is not None
    assert table.exact.index.tolist() == list(range(38))
    table = read_table(path, **given, missing="impute")
    assert (len(table), table.dropped, table.missing) == (40, 0, {"age": 1, "sex": 1})
    assert table.names == ("age", "age is missing", "sex is missing", "sex")
    assert isinstance(table.X, pd.DataFrame)
    assert table.X.iloc[0].tolist() == [50, 1, 0, "m"]
    assert table.X.iloc[1].tolist() == [40, 0, 1, "f"]


def test_columns_that_are_no_covariates_are_left_out_unless_they_are_asked_for(tmp_path: Path):
    write_frame(PATIENTS.assign(age=45.5, lab=np.r_[-999, np.linspace(3, 5, 39)]), tmp_path / "patients.csv")
    table = read_table(tmp_path / "patients.csv", domain="domain", missing="drop")
    assert set(table.names) == {"zip", "sex", "ward"}
    assert set(table.suspicious) == {"patient", "age", "lab"}
    assert set(table.left_out) == set(table.suspicious)
    table = read_table(tmp_path / "patients.csv", domain="domain", columns=["patient", "ward"])
    assert (table.names, list(table.suspicious)) == (("patient", "ward"), ["patient"])
