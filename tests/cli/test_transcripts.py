"""Sessions at a terminal, in transcripts/*.txt: files, commands, and everything that these print; `--update-golden` writes it anew.

`<< NAME` begins a file and `<<` ends it; `~ NAME OLD ~> NEW` writes it with something else in one place, `rm NAME` removes it;
`$ ...` is a command. Lines of stdout begin with `>`, those of stderr with `!`, and `= N` is an exit code that is not 0.
Folders, keys, times and, where the first line says so, all other numbers are masked; equal lines that follow one another are one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import groupby, takewhile
from pathlib import Path

import kernelscape as ks
import pytest

FOLDER = Path(__file__).parent / "transcripts"
MASKED = "# Numbers are masked."
MASKS = (
    (r"\b[0-9a-f]{8,}\b", "KEY"),
    (r"kernelscape \d\S*", "kernelscape VERSION"),
    (r"(?m)^[* ][UWMRDN]    \|", "* R    |"),
    (r"-?\d[\d.]* ?(ns|us|ms|s)\b", "TIME"),
    # Tiny programs: the bound of a machine that is not calibrated may say next to nothing.
    (r"(?m)^Gap +([\d.]+% proved.*|none: the bound says .*)$", "Gap          GAP"),
    (r"(?m)^(bound .* gap) (-|[\d.]+%)$", r"\1 GAP"),
)
NUMBERS = (r"(?<!line )(?<![\w.^-])[-+]?\d[\d.,]*(e[-+]?\d+)?(?=x\b|\W|$)", "N")
OUTPUT = re.compile(r"[>!=]( |$)")


@pytest.fixture(autouse=True)
def _no_program_is_left() -> Iterator[None]:
    yield
    ks.reset()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_what_is_printed_is_what_was_printed(explore, request, path: Path) -> None:
    given = path.read_text()
    found = "\n".join(played(given, explore)) + "\n"
    if request.config.getoption("--update-golden"):
        path.write_text(found)
    assert found == path.read_text()


def played(text: str, explore) -> Iterator[str]:
    """The lines of a transcript, with what its commands print now."""
    lines, files = iter(text.splitlines()), {}
    for line in lines:
        if OUTPUT.match(line):
            continue
        yield line
        kind, _, rest = line.partition(" ")
        if kind == "<<":
            body = list(takewhile(lambda x: x != "<<", lines))
            yield from (*body, "<<")
            files[rest] = "\n".join(body) + "\n"
            Path(rest).write_text(files[rest])
        elif kind == "~":
            name, old, new = re.fullmatch(r"(\S+) (.+) ~> ?(.*)", rest).groups()
            assert old in files[name]
            Path(name).write_text(files[name].replace(old, new))
        elif kind == "rm":
            Path(rest).unlink()
        elif kind == "$":
            code, out, err = explore(*shlex.split(rest))
            is_masked = text.startswith(MASKED)
            yield from (f"> {x}".rstrip() for x in masked(out, is_masked))
            yield from (f"! {x}".rstrip() for x in masked(err, is_masked))
            yield from [f"= {code}"] if code else []


def masked(text: str, are_numbers: bool) -> list[str]:
    """The lines of an output without what differs from run to run."""
    text = text.replace(str(Path.cwd()), "FOLDER")
    for pattern, word in (*MASKS, NUMBERS) if are_numbers else MASKS:
        text = re.sub(pattern, word, text)
    lines = (
        re.sub(r"(?<=\S) {2,}", " ", line) if are_numbers else line for line in text.splitlines()
    )
    return [line for line, _ in groupby(lines)]


def test_a_word_that_changes_is_seen() -> None:
    """The kind: a page of which a test looks at pieces, and another piece is wrong."""
    text = "$ show one\n> Tasks\n! a note\n= 2\n"
    said = (2, "Tasks\n", "a note\n")
    assert "\n".join(played(text, lambda *_: said)) + "\n" == text
    for other in ((2, "Taks\n", "a note\n"), (2, "Tasks\n", ""), (0, "Tasks\n", "a note\n")):
        assert "\n".join(played(text, lambda *_, told=other: told)) + "\n" != text
