"""Files of one addition: at most three of the product for a choice, a pass, an operation, a kind of node, a backend.

Where it can be, one is added here, by nothing but what CONTRIBUTING.md says; else its names in the product are counted.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen import describe as words
from kernelscape.codegen.lower import lower
from kernelscape.codegen.passes.pipeline import CPU as PASSES
from kernelscape.codegen.plan import summary
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.plan.plan import Plan
from kernelscape.kernels.fields import tree
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.structure import KINDS, Kind
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space import build, catalogue
from kernelscape.space.draft import Draft, Family, Phrases
from kernelscape.testing import checking

from tests.test_architecture import PRODUCT, ROOT, files, name_of, tree_of

MOST = 3  # product files


@cache
def places() -> dict[str, set[str]]:
    """The files of the product in which each text stands, and each imported name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (*files(*PRODUCT), ROOT / "__init__.py"):
        for n in ast.walk(tree_of(path)):
            if isinstance(n, ast.Constant) and isinstance(n.value, str):
                found[n.value].add(name_of(path))
            if isinstance(n, ast.ImportFrom):
                for part in (n.module or "").split("."):
                    found[part].add(name_of(path))
    return found


@ks.kernel
def doubled(x: ks.types.ndarray(), y: ks.types.ndarray()) -> None:
    for i in range(x.shape[0]):
        y[i] = 2.0 * x[i]


@pytest.fixture
def unrolling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A family with a choice of its own, as one file of space/families/ says it."""

    def declare(s: Draft) -> None:
        for t, task in enumerate(s.problem.tasks):
            s.v.of_tasks["unrolled"][t] = s.b.add("unrolled", (task.name,), ("PLAIN", "PRIME"))

    said = Phrases("unrolled", "unrolling", {"PRIME": "by a prime"}, {"PRIME": "by 5"})
    family = Family("unrolled", {"cpu": (), "gpu": ()}, declare, (said,))
    more = {kind: (*found, family) for kind, found in build.FAMILIES.items()}
    monkeypatch.setattr(build, "FAMILIES", more)
    for module in (words, catalogue):
        monkeypatch.setattr(module, "PHRASES", (*catalogue.PHRASES, said))


@pytest.mark.usefixtures("unrolling")
def test_a_choice_is_its_family_and_its_pass() -> None:
    x = np.ones(100, np.float32)
    problem = normalise(record_sequence(doubled, (x, x.copy()), name="doubled"))
    space = build.build_space(problem, checking.target(2, 32))
    root = space.root()
    seen = []

    def unroll(launch, plan: Plan):
        seen.extend(plan.choice("unrolled", t) for t in launch.tasks)
        return launch

    passes = ks_passes(unroll)
    for value, long, short in (("PLAIN", (), False), ("PRIME", ("doubled0 by a prime",), True)):
        var = space.variables.of_tasks["unrolled"][0]
        decided = root.decide(var, space.choices[var].mask(value))
        candidate = checking.random_candidate(decided, np.random.default_rng(1))
        assert words.describe(candidate)["unrolling"] == long
        assert any("by 5" in line for line in summary.decisions(plan_of(candidate))) is short
        lower(plan_of(candidate), passes)
    assert seen == ["PLAIN", "PRIME"]
    _, first = next(iter(first_candidates(space)))
    assert first.is_complete


def ks_passes(more):
    """A pass is a function, and a name in the list of a target."""
    return type(PASSES)((*PASSES.loops, more), PASSES.syntax, PASSES.apart_bytes)


def test_families_are_found_by_themselves() -> None:
    found = {p.stem for p in (ROOT / "space" / "families").glob("*.py")} - {"__init__"}
    assert {f.name for fs in build.FAMILIES.values() for f in fs} <= found | {"block_memory"}
    assert len(catalogue._families()) == len(found)


@pytest.mark.parametrize(("kind", "writer"), [("guard", "guards"), ("rows", "register_rotation")])
def test_a_choice_of_tasks_is_named_by_its_family_and_its_writer(kind: str, writer: str) -> None:
    """Sketches and other families may name it too: they say what first candidates have of it, and what it has to do with theirs."""
    asked = f"choice('{kind}', "
    assert [name_of(p) for p in files("codegen") if asked in ast.unparse(tree_of(p))] == [
        f"codegen/write/{writer}.py"
    ]


def test_a_pass_is_a_function_and_its_name_in_the_list() -> None:
    for make in PASSES.loops:
        module = make.__module__.removeprefix("kernelscape.").replace(".", "/") + ".py"
        users = {name_of(p) for p in files(*PRODUCT) if make.__name__ in words_of(p)} - {module}
        assert len(users) + 1 <= MOST, make.__name__


@cache
def words_of(path: Path) -> set[str]:
    return {n.id for n in ast.walk(tree_of(path)) if isinstance(n, ast.Name)}


@pytest.mark.parametrize("name", ["asinh", "acosh", "atanh", "expm1", "log10"])
def test_an_operation_is_a_row_and_a_public_name(name: str) -> None:
    """A third file lists vector functions. Derivatives are a table of their own, which a test compares with the operations."""
    derivatives = "kernels/transforms/derivatives/rules.py"
    assert {"kernels/ir/ops.py", "__init__.py", derivatives} <= places()[name]
    assert len(places()[name] - {derivatives}) <= MOST


def test_a_kind_of_node_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KINDS:
        assert places()[name] == {"kernels/ir/structure.py"}
    monkeypatch.setitem(KINDS, "flagged", Kind("Cells with a bit each.", mask=True))
    monkeypatch.setattr(tree.SNode, "flagged", tree._adding("flagged"), raising=False)
    ks.init()
    x = ks.field(ks.i32)
    ks.root.flagged(ks.ij, (4, 3)).place(x)
    seen = ks.field(ks.i32, (4, 3))

    @ks.kernel
    def count():
        x[1, 2] = 5
        for i, j in x:
            seen[i, j] += x[i, j]

    count()
    assert seen.to_numpy().sum() == seen[1, 2] == 5
    assert tree.SNode.flagged.__doc__ == "Cells with a bit each."
    ks.reset()


@pytest.mark.parametrize("name", ["cuda", "emulator", "fake"])
def test_a_backend_is_a_folder(name: str) -> None:
    """Counts files that name it outside of its folder and of those of other backends."""
    folders = tuple(f"runtime/{p.parent.name}/" for p in (ROOT / "runtime").glob("*/device.py"))
    outside = {p for p in places()[name] if not p.startswith(folders)}
    assert len(outside) + 1 <= MOST, outside
