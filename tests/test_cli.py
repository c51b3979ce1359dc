"""The command line of every command: its help, its example, and the parameters that its options set."""

import inspect
import re
import shlex
import subprocess
import sys
import time
from importlib import import_module

import pytest

from okapi.cli import COMMANDS, main, parse


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
    calls = [shlex.split(line) for line in lines if line.startswith("okapi ")]
    assert command in {call[1] for call in calls}
    for call in calls:
        parser, options = parse(call[1:])
        function = getattr(import_module(f"okapi.commands.{parser.name}"), parser.name)
        inspect.signature(function).bind(**options)
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


def test_help_answers_at_once():
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-m", "okapi", "--help"], capture_output=True, check=True)
        seconds.append(time.perf_counter() - begun)
    assert min(seconds) < 0.3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "okapi: a command is missing: match, tune, "),
        ("--versoin", "okapi: unknown option --versoin; did you mean --version?"),
        ("mtch", "okapi: unknown command 'mtch'; did you mean match? See okapi --help"),
        ("match t.csv", "okapi match: --domain is missing. See okapi match --help"),
        ("match t.csv --domian site", "okapi match: unknown option --domian; did you mean --domain?"),
        ("match --domain site", "okapi match: FILE is missing"),
        ("match t.csv u.csv --domain site", "okapi match: unexpected argument 'u.csv'"),
        ("match t.csv --domain", "okapi match: --domain needs a value"),
        ("match t.csv --domain site --exact", "okapi match: --exact needs a value"),
        ("match t.csv --domain site --k many", "okapi match: --k must be a whole number, got 'many'"),
        ("match t.csv --domain site --data.root x", "okapi match: unknown option --data.root"),
        ("match t.csv --domain site --estimand ate", "--estimand must be one of 'both', 'att', 'atc', got 'ate'"),
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
    assert options["std_caliper"] == (None, 0.5)
    assert (options["replace"], options["two_way"], options["exact"]) == (False, False, ("a", "b"))
