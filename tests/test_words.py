"""Help texts and docs are in the field's own words."""

import re
from pathlib import Path

import pytest

from okapi.cli import COMMANDS, parse

ROOT = Path(__file__).parents[1]
FORBIDDEN = (
    "slow copy|taught|teach(es)?|lessons?|as_frequent|outcome_clusters|rehearsals?|nursery|refuse[sd]?|"
    "less the mean of its domain|(goes|go|going) on with"
)


def forbidden(text: str) -> list[str]:
    return [found[0] for found in re.finditer(rf"\b({FORBIDDEN})\b", " ".join(text.split()), re.IGNORECASE)]


def test_a_forbidden_word_is_found_across_lines():
    assert forbidden("Slow\n    copy of what the Lesson taught") == ["Slow copy", "Lesson", "taught"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_no_forbidden_words(command, capsys):
    with pytest.raises(SystemExit):
        parse([command, "--help"])
    assert not forbidden(capsys.readouterr().out)


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))], ids=lambda path: path.name)
def test_docs_have_no_forbidden_words(path):
    assert not forbidden(path.read_text(encoding="utf-8"))


def test_messages_and_docstrings_have_no_forbidden_words():
    found = {path.name: forbidden(path.read_text(encoding="utf-8")) for path in ROOT.glob("src/okapi/**/*.py")}
    assert not {name: words for name, words in found.items() if words}
