"""The file of the search trees: what is written is read, and nothing in such a file can do harm."""

from __future__ import annotations

import json

import pytest
from kernelscape.runtime.records import tree_file

CHILDREN = (
    tree_file.ExpandedChild("BEFORE", 100.0, False, ""),
    tree_file.ExpandedChild("AFTER", 123.4567, False, ""),
    tree_file.ExpandedChild("MERGED", None, False, "no </script> fits"),
    tree_file.ExpandedChild("16", 500.0, True, ""),
)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tree.jsonl"
    writer = tree_file.TreeWriter(path)
    writer.begin(1, 0, 100.0)
    writer.expand(0, "order(a,b)", "M", 0.25, 1, CHILDREN, 100.0)
    writer.expand(2, "size(i)", "D", 0.5, 5, CHILDREN[:2], 123.4567)
    writer.close_node(6, "bound", 110.0)
    writer.close_node(1, "constraint", 90.0)
    writer.reopen(1)
    writer.flush()
    return path


def test_what_is_written_is_read(path):
    (tree,), n_lost, is_full = tree_file.read_trees(path)
    assert (n_lost, is_full, tree.session, tree.tree) == (0, False, 1, 0)
    assert tree.parent == [-1, 0, 0, 0, 0, 2, 2]
    assert tree.state == [
        tree_file.EXPANDED,
        tree_file.OPEN,
        tree_file.EXPANDED,
        tree_file.FORBIDDEN,
        tree_file.CUT,
        tree_file.OPEN,
        tree_file.CLOSED_BOUND,
    ]
    assert tree.bound_ns == [100.0, 100.0, 123.457, 100.0, 500.0, 123.457, 123.457]
    names = [tree.names[v] if v >= 0 else "" for v in tree.value]
    assert names == ["", "BEFORE", "AFTER", "MERGED", "16", "BEFORE", "AFTER"]
    assert [tree.names[c] for c in tree.choice if c >= 0] == ["order(a,b)", "size(i)"]
    assert tree.names[tree.why[3]] == "no </script> fits"
    assert (tree.cut_ns[6], tree.cut_ns[1], chr(tree.tag[2]), tree.at_s[2]) == (110, 0, "D", 0.5)
    assert tree.array("bound_ns").dtype == float


def test_a_name_is_written_once_a_session(path):
    assert path.read_text().count("BEFORE") == 1
    writer = tree_file.TreeWriter(path)
    writer.begin(2, 0, 100.0)
    writer.expand(0, "order(a,b)", "M", 0.25, 1, CHILDREN, 100.0)
    writer.flush()
    assert path.read_text().count("BEFORE") == 2
    assert [len(t) for t in tree_file.read_trees(path).trees] == [7, 5]


def test_children_take_few_bytes(tmp_path):
    writer = tree_file.TreeWriter(tmp_path / "t")
    writer.begin(1, 0, 473700.0)
    children = [
        tree_file.ExpandedChild(str(2**k), 473700.0 + 1000 * k, k > 4, "") for k in range(6)
    ]
    for k in range(1000):
        writer.expand(6 * k, f"size(i.{k % 40})", "M", 1.5 + k, 6 * k + 1, children, 473700.0)
    writer.flush()
    assert writer.n_bytes == (tmp_path / "t").stat().st_size
    assert writer.n_bytes / writer.n_children < 20


def test_the_cap_is_kept_and_said(tmp_path):
    path = tmp_path / "t"
    for session in (1, 2):
        writer = tree_file.TreeWriter(path, cap_bytes=2000)
        writer.begin(session, 0, 1.0)
        for k in range(100):
            writer.expand(4 * k, "c", "M", 0.0, 4 * k + 1, CHILDREN, 1.0)
        writer.flush()
    found = tree_file.read_trees(path)
    assert found.is_full
    assert len(found.trees) == 1
    assert 2000 <= path.stat().st_size < 2100


def test_a_torn_end_costs_its_line_and_what_is_below(path):
    whole = path.read_bytes()
    for n in range(len(whole)):
        path.write_bytes(whole[:n])
        before = sum(map(len, tree_file.read_trees(path).trees))
        writer = tree_file.TreeWriter(path)
        writer.begin(2, 0, 100.0)
        writer.expand(0, "order(a,b)", "M", 0.25, 1, CHILDREN, 100.0)
        writer.flush()
        trees = tree_file.read_trees(path).trees
        assert len(trees[-1]) == 5, n
        assert sum(map(len, trees[:-1])) in (before, before + 1)


def test_no_file_is_no_tree(tmp_path):
    assert tree_file.read_trees(tmp_path / "none") == ((), 0, False)


@pytest.mark.parametrize(
    "line",
    [
        "[0,0]",
        "[]",
        "17",
        "null",
        "{}",
        '{"schema":9,"session":1,"tree":0,"bound_ns":1}',
        '[0,0,"M",0,1,[0,0]]',
        '[1,99,"M",0,7,[0,0]]',
        '[1,-1,"M",0,7,[0,0]]',
        '[1,0,"MM",0,7,[0,0]]',
        '[1,0,"M",0,7,[99,0]]',
        '[1,0,"M",0,7,[-1,0]]',
        '[1,0,"M",0,7,[0]]',
        '[1,0,"M",0,7,["x",0]]',
        '[1,0,"M",0,7,[0,"99"]]',
        '[1,0,"M",0,7,[0,null]]',
        '["p",99,"bound",1]',
        '["p",1,"mood",1]',
        '["r","x"]',
    ],
)
def test_what_is_no_line_of_a_tree_is_counted_and_passed_over(path, line):
    before = tree_file.read_trees(path).trees[0]
    path.write_text(path.read_text() + line + "\n")
    (after,), n_lost, _ = tree_file.read_trees(path)
    assert n_lost == 1
    for column in ("parent", "choice", "value", "state", "why", "tag", "bound_ns", "at_s"):
        assert getattr(after, column) == getattr(before, column)
        assert len(after.array(column)) == len(after)


def test_a_full_disk_ends_the_file_and_not_the_search(tmp_path):
    (tmp_path / "t").mkdir()
    writer = tree_file.TreeWriter(tmp_path / "t" / ".." / "none" / "tree.jsonl")
    writer.begin(1, 0, 1.0)
    writer.flush()
    writer.expand(0, "c", "M", 0.0, 1, CHILDREN, 1.0)
    writer.flush()
    assert not (tmp_path / "none").exists()


def test_infinite_bounds_are_json(tmp_path):
    writer = tree_file.TreeWriter(tmp_path / "t")
    writer.begin(1, 0, float("inf"))
    writer.close_node(0, "bound", float("inf"))
    writer.flush()
    assert all(json.loads(line) for line in (tmp_path / "t").read_text().splitlines())
