"""Libraries take turns, and what a process of theirs says or does not say is a value or a sentence."""

from __future__ import annotations

import sys

import pytest
from kernelscape.experiments import turns


def test_every_way_has_its_turn_in_every_round():
    order = []

    def once(way, python, name):
        order.append((name, way))
        return {"python": python, "at": len(order)}

    found = turns.by_turns({"ours": "p", "theirs": "q"}, ["a", "b"], 2, once)
    assert order == [("a", "ours"), ("a", "theirs"), ("b", "ours"), ("b", "theirs")] * 2
    assert [x["at"] for x in found["a"]["theirs"]] == [2, 6]
    assert {x["python"] for x in found["b"]["ours"]} == {"p"}


def test_the_last_line_counts_and_a_failure_is_its_last_word(tmp_path):
    said = turns.run_text(
        sys.executable,
        "import os, sys\nprint('x')\nprint('{\"a\": ' + sys.argv[1] + os.environ['B'] + '}')",
        *(tmp_path, 60.0, "4"),
        B="2",
    )
    assert said == {"a": 42}
    with pytest.raises(RuntimeError, match=r"^no luck$"):
        turns.run_text(sys.executable, "raise SystemExit('first\\nno luck')", tmp_path, 60.0)


def test_a_library_that_is_not_there_is_a_usage_error(capsys):
    parser = turns.turns_parser(None, 3, ["a"], ("taichi",))
    given = parser.parse_args(["--only", "a", "--only", "a", "--taichi", sys.executable])
    assert (given.only, given.rounds) == (["a", "a"], 3)
    with pytest.raises(SystemExit) as caught:
        turns.pythons_of(parser, {"nosuch-package": given.taichi}, "ours")
    assert caught.value.code == 2
    assert "has no nosuch-package" in capsys.readouterr().err
