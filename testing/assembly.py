"""Instructions of x86 in the output of compilers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

# Operations on floats end in how many elements they take at once, and in their type (Intel SDM, vol. 1, section 10.4).
_OF_FLOATS = re.compile(r"v?f?n?m?(?:add|sub|mul|div)\w*?(?P<many>[ps])[sd]")


def instructions(command: Sequence[str]) -> list[str]:
    """Mnemonics in the order of the text that a compiler makes of `command`, which ends with `-o FILE`."""
    *_, file = command
    subprocess.run([*command[:-2], "-S", "-o", file], check=True)
    lines = Path(file).read_text().splitlines()
    return [words[0] for line in lines if line[:1].isspace() and (words := line.split())]


def lanes_of(mnemonics: Sequence[str]) -> set[str]:
    """The kinds of arithmetic on floats: "packed", several elements at once, and "scalar"."""
    found = (_OF_FLOATS.fullmatch(m) for m in mnemonics)
    return {"packed" if m["many"] == "p" else "scalar" for m in found if m}
