"""The command line of every command: its help, its example, and the parameters that its options set."""

import errno
import inspect
import io
import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from okapi.cli import COMMANDS, main, parse
from okapi.console import print_notes, stdout


def printed_help(command: str, capsys) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_of_the_help_parses(command, capsys):
    text = printed_help(command, capsys)
    examples = text.partition("example:\n")[2].partition("\n\n")[0].replace("\\\n", " ")
    lines = [re.split(r" {3,}", line.strip())[0] for line in re.sub(r" {3,}--", " --", examples).splitlines()]
    calls = [shlex.split(line.partition(" | ")[0]) for line in lines if line.startswith("okapi ")]
    assert command in {call[1] for call in calls}
    for call in calls:
        parser, options = parse(call[1:])
        function = getattr(import_module(f"okapi.commands.{parser.name}"), parser.name)
        inspect.signature(function).bind(**{name: options[name] for name in options if name not in ("debug", "json")})
    assert "_" not in "".join(re.findall(r"^  (--\S+)", text, re.MULTILINE))
    assert all(len(line) <= 120 for line in text.partition("keys of")[0].splitlines())


HEAVY = {"torch", "numpy", "pandas", "sklearn", "scipy", "matplotlib", "transformers"}


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["--help"], 0, "diagnose"),
        (["match", "--help"], 0, "--std-caliper"),
        (
            ["train", "wrong.yaml", "--out", "run"],
            2,
            "training.stepz is no key of the config; did you mean training.steps?",
        ),
        (["benchmark", "wrong.yaml", "--out", "run"], 2, "wrong.yaml: training.stepz is no key"),
        (["benchmark", ".", "--out", "run"], 2, "wrong.yaml: training.stepz is no key"),
        (["benchmark", ".", "--methods", "wrogn"], 2, "method 'wrogn' has no config: . has 'wrong'"),
        (["embed", "wrong.yaml", "--out", "run"], 2, "wrong.yaml: training.stepz is no key"),
        (["diagnose", "wrong.yaml"], 2, "wrong.yaml: training.stepz is no key"),
        (["data", "configs/sites/erm.yaml", "--data.sedd", "3"], 2, "--data.sedd is no key"),
        (["config", "training.steps"], 0, "training.steps: a whole number"),
    ],
)
def test_help_and_typos_load_nothing_that_takes_long(words, code, expected, tmp_path):
    (tmp_path / "wrong.yaml").write_text(
        "data: {name: sites}\nmodel: {name: mlp}\nalgorithm: {name: erm}\ntraining: {stepz: 5}\n"
    )
    loaded = f"print('heavy:', sorted({HEAVY} & {{*sys.modules}}))"
    program = (
        f"import sys, atexit, okapi.cli\natexit.register(lambda: {loaded})\nsys.exit(okapi.cli.main(sys.argv[1:]))"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == code
    assert expected in done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "heavy: []"
    assert not (tmp_path / "run").exists()


def test_importing_okapi_loads_nothing_that_takes_long():
    program = f"import sys, okapi; assert not {HEAVY} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "okapi: a command is missing: match, tune, "),
        ("--versoin", "okapi: unknown option --versoin; did you mean --version?"),
        ("mtch", "okapi: unknown command 'mtch'; did you mean match? See okapi --help"),
        ("match t.csv --domian site", "okapi match: unknown option --domian; did you mean --domain?"),
        ("match --domain site", "okapi match: FILE is missing"),
        ("match t.csv u.csv --domain site", "okapi match: unexpected argument 'u.csv'"),
        ("match t.csv --domain", "okapi match: --domain needs a value"),
        ("match t.csv --domain site --exact", "okapi match: --exact needs a value"),
        ("match t.csv --domain site --k many", "okapi match: --k must be a whole number, got 'many'"),
        ("match t.csv --domain site --data.root x", "okapi match: unknown option --data.root"),
        ("match t.csv --treatment arm --estimand al", "--estimand must be one of 'att', 'atc', 'ate', got 'al'"),
        ("tune t.csv --domain site --std-caliper 1 wide", "--std-caliper must be a number or none, got 'wide'"),
        ("train c.yaml --training.steps", "okapi train: --training.steps needs a value"),
        ("train c.yaml --training.steps --seed 1", "okapi train: --training.steps needs a value"),
        ("train c.yaml --stesp 3", "okapi train: unknown option --stesp"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(words, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(words.split())
    out, errors = capsys.readouterr()
    assert (stopped.value.code, out) == (2, "")
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_keys_and_lists_arrive_as_they_were_given():
    words = "train c.yaml --training.steps 20 --out run --model.hidden=[8, 8] --seed -1"
    _, options = parse(shlex.split(words.replace("[8, 8]", "'[8, 8]'")))
    assert options["overrides"] == [("training.steps", "20"), ("model.hidden", "[8, 8]")]
    assert (str(options["config"]), options["seed"]) == ("c.yaml", -1)
    words = "tune t.csv --domain site --std-caliper none 0.5 --prognostic-caliper 1 --no-replace --one-way --exact a b"
    _, options = parse(words.split())
    assert options["std_caliper"] == [None, 0.5]
    assert (options["replace"], options["two_way"], options["exact"]) == (False, False, ["a", "b"])


REQUIRED = {
    "init": "x",
    "match": "t.csv --domain site",
    "tune": "t.csv --domain site",
    "diagnose": "t.csv",
    "embed": "c.yaml --out e.npz",
    "predict": "run photos --out p.csv",
    "evaluate": "run",
    "benchmark": "c.yaml",
    "report": "run",
    "data": "photos",
}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.csv"
    lines = [f"{'ab'[row % 2]},{row * 7 % 31 + 0.5},{row * 5 % 17 + 0.5}" for row in range(60)]
    path.write_text("\n".join(["site,age,dose", *lines]))
    return path


def test_tables_are_json_where_that_is_asked_for(table, capsys):
    assert main(["match", str(table), "--domain", "site", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert set(content) == {"tables", "notes"}
    first = content["tables"][0]
    assert first["title"] == "What each rule leaves"
    assert first["rows"][0][first["columns"].index("queries")] == 60
    assert {len(row) for row in first["rows"]} == {len(first["columns"])}
    assert main(["match", str(table), "--domain", "site"]) == 0  # and not for the next
    assert "What each rule leaves\n" in capsys.readouterr().out
    assert main(["match", str(table), "--domain", "place", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_every_command_that_prints_tables_has_json():
    named = {command: parse([command, *REQUIRED.get(command, "").split()])[1] for command in COMMANDS}
    assert all("debug" in options for options in named.values())
    assert {name for name, options in named.items() if "json" not in options} == {
        "init",
        "train",
        "config",
        "embed",
        "predict",
        "report",
    }


def test_an_unexpected_error_is_a_sentence_and_with_debug_a_traceback(table, monkeypatch, capsys):
    def fail(*words, **options):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("okapi.commands.match.match", fail)
    assert main(["match", str(table), "--domain", "site"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "okapi: unexpected ZeroDivisionError: division by zero. --debug shows where it is raised\n"
    with pytest.raises(ZeroDivisionError):
        main(["match", str(table), "--domain", "site", "--debug"])


def test_a_full_disk_is_a_failure_and_no_wrong_usage(table, monkeypatch, capsys):
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("okapi.files.sync", full)
    out = table.with_name("out.html")
    assert main(["match", str(table), "--domain", "site", "--report", str(out)]) == 1
    assert capsys.readouterr().err.endswith(f"okapi: [Errno 28] No space left on device: '{out}'\n")
    assert list(table.parent.iterdir()) == [table]


@pytest.mark.parametrize("variable", [{}, {"NO_COLOR": "1"}])
def test_no_color_switches_colours_off_in_a_terminal(variable, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"TERM": "xterm-256color"} | variable).items():
        monkeypatch.setenv(name, value)
    print_notes(stdout(), ["look at the overlap"])
    assert "look at the overlap" in terminal.getvalue()
    assert ("\x1b[1;33m" in terminal.getvalue()) is not bool(variable)


def test_a_reader_that_leaves_is_no_error(table):
    command = [sys.executable, "-m", "okapi", "match", str(table), "--domain", "site"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == f"Reading {table}\nMatching 60 samples\n"
        assert process.wait() == 1


def test_texts_that_a_spreadsheet_would_compute_are_marked(tmp_path, capsys):
    lines = [f"=cmd{row},{'ab'[row % 2]},{row * 7 % 31 - 9.5}" for row in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["name,site,age", *lines]))
    words = ["match", str(tmp_path / "t.csv"), "--domain", "site", "--id", "name", "--out", str(tmp_path / "pairs.csv")]
    for option, begin in (["--safe-csv"], "'=cmd0,1,'=cmd"), ([], "=cmd0,1,=cmd"):
        assert main([*words, *option]) == 0
        assert (tmp_path / "pairs.csv").read_text().splitlines()[1].startswith(begin)


@pytest.mark.parametrize(
    ("line", "expected"), [("okapi tr", {"train "}), ("okapi match t.csv --std", {"--std-caliper "})]
)
def test_the_shell_completes_commands_and_options(line, expected, tmp_path):
    out = tmp_path / "completions"
    variables = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    variables |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(out)}
    subprocess.run([sys.executable, "-m", "okapi"], env=os.environ | variables, check=True)
    assert set(out.read_text().split("\n")) == expected
