"""Tables of the bound: columns have names, for numba and for Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernelscape.search.bound import columns
from kernelscape.search.bound.columns import table


def test_a_table_has_rows_of_named_columns() -> None:
    found = table([(1, 2, 0.5), (3, 4, 1.5)], "first end", "ns")
    assert (found[1].first, found[1].end, found[1].ns) == (3, 4, 1.5)
    assert table([], "first end").shape == (0,)
    # The type is looked up in every call of a compiled function: by identity, not by going through its columns.
    assert table([(7, 8)], "first end").dtype is table([], "first end").dtype


def test_no_column_is_asked_for_by_its_number() -> None:
    by_number = re.compile(r"\w\[[^\[\],]+, \d+\]")
    for path in sorted(Path(columns.__file__).parent.glob("*.py")):
        assert not by_number.findall(path.read_text()), path.name


def test_no_column_has_the_name_of_a_method() -> None:
    """Kind: interpreted code reads a method of records where compiled code reads a column."""
    with pytest.raises(AssertionError, match="copy"):
        table([(1, 2)], "copy end")
