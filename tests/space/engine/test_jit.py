"""The compiled and the plain engine agree; the cache is keyed by the source."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from kernelscape.space.engine import jit, own_folders

PROBE = """
import hashlib
import numpy as np
from kernelscape.space.candidate import DeadEnd
from kernelscape.testing.bare import bare_space
from kernelscape.space.engine.builder import ModelBuilder
from kernelscape.space.engine.declarations import Term
from kernelscape.space.engine.propagate import decide, random_descent

builder = ModelBuilder()
for i in range(5):
    builder.add_object(f"d{i}", leaf=i == 4)
sizes = [builder.add("size", (f"d{i}",), ("1", "2", "4", "8")) for i in range(4)]
kinds = [builder.add("kind", (f"d{i}",), ("LOOP", "VECTOR", "PARALLEL")) for i in range(4)]
for i in range(4):
    builder.clause("outer", [(builder.order(i, 4), 8), (kinds[i], 1)])
    builder.table2("vector", kinds[i], sizes[i], lambda k, s: k != 1 or s > 0, share="v")
    for j in range(i):
        builder.table3(
            "same", builder.order(i, j), sizes[i], sizes[j], lambda o, a, b: o != 4 or a == b
        )
builder.product_at_most("p", [Term((kinds[i], 4), sizes[i], (1, 2, 4, 8)) for i in range(4)], 16)
builder.sum_at_most("s", [Term((kinds[i], 2), sizes[i], (1, 1, 1, 2)) for i in range(4)], 2)
space = bare_space(builder.freeze())
root = space.root()
digest = hashlib.sha256()
rng = np.random.default_rng(1)
for seed in range(30):
    domains = root.domains.copy()
    digest.update(repr(random_descent(space.model, space.scratch, domains, seed)).encode())
    digest.update(domains.tobytes())
    child = root.random_completion(rng)
    digest.update(repr(child).encode())
for var in root.open_choices():
    for value, child in root.expand(var):
        done = child if isinstance(child, DeadEnd) else child.complete()
        digest.update(done.why.encode() if isinstance(done, DeadEnd) else done.key)
print(hasattr(decide, "py_func"), digest.hexdigest())
"""


def probe(**environment):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_without_the_jit_everything_runs_and_agrees():
    compiled, plain = probe(NUMBA_DISABLE_JIT="0"), probe(NUMBA_DISABLE_JIT="1")
    assert [compiled[0], plain[0]] == ["True", "False"]
    assert compiled[1] == plain[1]


@pytest.fixture
def fresh_folder(monkeypatch):
    monkeypatch.setattr(jit._CONFIG, "CACHE_DIR", "")
    jit.cache_folder.cache_clear()
    yield jit.cache_folder
    jit.cache_folder.cache_clear()


def test_cache_folder_names_versions_and_source(fresh_folder, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = fresh_folder()
    assert folder.parent == tmp_path / "kernelscape" / "numba"
    assert f"numba{numba.__version__}" in folder.name
    assert folder.name.endswith(jit.source_hash())


def test_an_unwritable_cache_falls_back_to_a_temporary_folder(fresh_folder, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr(own_folders.tempfile, "gettempdir", lambda: str(temporary))
    assert temporary in fresh_folder().parents


def test_code_that_others_may_have_written_is_not_taken(fresh_folder, monkeypatch, tmp_path):
    """numba loads what it finds: so nobody else may have put it there, nor be able to."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jit, "private_folder", lambda folder, why: tmp_path / "private")
    folder = fresh_folder()
    assert tmp_path / "private" not in folder.parents
    for spoil in (lambda: folder.chmod(0o750), lambda: (folder / "link").symlink_to(tmp_path)):
        folder.chmod(0o700)
        spoil()
        jit.cache_folder.cache_clear()
        assert fresh_folder() == tmp_path / "private" / "numba" / folder.name


def test_the_hash_follows_every_source_file(monkeypatch, tmp_path):
    for folder in ("space", "search"):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(jit, "_PACKAGE", Path(tmp_path))
    hashes = set()
    for name, text in [
        ("space/a.py", "1"),
        ("space/a.py", "2"),
        ("search/a.py", "2"),
        ("space/b.py", ""),
    ]:
        (tmp_path / name).write_text(text)
        jit.source_hash.cache_clear()
        hashes.add(jit.source_hash())
    jit.source_hash.cache_clear()
    assert len(hashes) == 4


def test_decorating_leaves_the_settings_of_numba_alone():
    before = jit._CONFIG.CACHE_DIR
    jit.jit(lambda x: x)
    assert before == jit._CONFIG.CACHE_DIR


TOLD = """
from kernelscape.space.engine.compiling import tell_when_compiling

tell_when_compiling(lambda: print("compiling"))

from kernelscape.space.engine.jit import jit

def inner(x):
    return x + 1

inner = jit(inner)

def outer(x):
    return inner(x) + inner(x + 1)

outer = jit(outer)
print(outer(1), outer(2.0))
"""


def test_who_compiles_is_told_once(tmp_path):
    script = tmp_path / "told.py"
    script.write_text(TOLD)
    said = [
        subprocess.run(
            [sys.executable, str(script)],
            env={
                **os.environ,
                "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
                "NUMBA_DISABLE_JIT": "0",
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\n")[:-1]
        for _ in range(2)
    ]
    assert said == [["compiling", "5 7.0"], ["5 7.0"]]


def decorated(tree):
    """Functions of a module by name, each with the names of its decorators."""
    return {
        f: {d.id for d in f.decorator_list if isinstance(d, ast.Name)}
        for f in tree.body
        if isinstance(f, ast.FunctionDef)
    }


def test_internal_functions_are_called_by_compiled_functions_only():
    """From Python such a call would end the process: there is no wrapper."""
    package = Path(jit.__file__).parent.parent.parent
    files = [p for f in ("space", "search", "tests") for p in (package / f).rglob("*.py")]
    texts = {path: path.read_text() for path in files}
    marked = {path: ast.parse(text) for path, text in texts.items() if "_internal" in text}
    internal = {
        (path.stem, f.name)
        for path, tree in marked.items()
        for f, names in decorated(tree).items()
        if names & {"jit_internal", "jit_flat_internal"}
    }
    assert ("filters", "narrow") in internal
    named = re.compile(rf"\b({'|'.join({module for module, _ in internal})}) import\b")
    others = {p: t for p, t in texts.items() if p not in marked and named.search(t)}
    trees = marked | {path: ast.parse(text) for path, text in others.items()}
    wrong = []
    for path, tree in trees.items():
        here = {name for module, name in internal if module == path.stem}
        here |= {
            a.asname or a.name
            for i in tree.body
            if isinstance(i, ast.ImportFrom) and i.module
            for a in i.names
            if (i.module.split(".")[-1], a.name) in internal
        }
        compiled = {f for f, names in decorated(tree).items() if any("jit" in n for n in names)}
        inside = {id(x) for f in compiled for x in ast.walk(f)}
        wrong += [
            f"{path.name}:{x.lineno} {x.id}"
            for x in ast.walk(tree)
            if isinstance(x, ast.Name) and x.id in here and id(x) not in inside
        ]
    assert not wrong
