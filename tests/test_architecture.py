"""Rules of the layout, read from the sources: the engine stands alone, targets are data, experiments patch nothing.

No rule has exceptions.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from kernelscape.codegen.loops import ir as loops
from kernelscape.kernels.ir import kernel

ROOT = Path(__file__).parent.parent
PRODUCT = (
    "kernels",
    "program",
    "space",
    "search",
    "codegen",
    "runtime",
    "explorer",
    "report",
    "compat",
    "cli",
)
SHIPPED = (*PRODUCT, "testing", "experiments")

# Where a GPU may be told from a CPU: its facts, and what people see.
GPU_PLACES = ("space/targets/", "cli/views.py")
BACKEND_DEVICE = re.compile(r"runtime\.\w+\.(device|runner|builder)$")
# Modules that replace what they do not own.
PATCHERS = {"mock", "unittest", "pytest"}


def files(*folders: str) -> list[Path]:
    """The Python files below folders, of which each must have some: a rule about a folder that is gone cannot fail."""
    found = {folder: sorted((ROOT / folder).rglob("*.py")) for folder in folders}
    assert all(found.values()), f"without a file: {[x for x, paths in found.items() if not paths]}"
    return sorted(p for paths in found.values() for p in paths)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def source_of(path: Path, node: ast.ImportFrom) -> Path:
    """The module or package that a relative import names, without its suffix."""
    return path.parents[node.level - 1].joinpath(*(node.module or "").split("."))


# --- the engine ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", files("space/engine"), ids=name_of)
def test_the_engine_imports_nothing_of_ours(path: Path) -> None:
    engine = ROOT / "space" / "engine"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            assert source_of(path, node).is_relative_to(engine), ast.unparse(node)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            assert "kernelscape" not in ast.unparse(node)


# --- classes -------------------------------------------------------------------------------------


@cache
def classes_of(path: Path) -> dict[str, ast.ClassDef]:
    return {n.name: n for n in tree_of(path).body if isinstance(n, ast.ClassDef)}


def bases_of(path: Path, name: str) -> Iterator[tuple[Path, str]]:
    """Classes of ours that a class is derived from, with the files that define them."""
    come_from = {
        alias.asname or alias.name: (source_of(path, node).with_suffix(".py"), alias.name)
        for node in tree_of(path).body
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    for base in classes_of(path)[name].bases:
        named = base.value if isinstance(base, ast.Subscript) else base
        if not isinstance(named, ast.Name):
            continue
        file, original = come_from.get(named.id, (path, named.id))
        if file.exists() and original in classes_of(file):
            yield file, original


def is_interface(path: Path, name: str) -> bool:
    """An abstract class, a protocol, or an exception that others refine."""
    if name.startswith("Abstract") or name.endswith(("Error", "Warning")):
        return True
    return any(
        "ABC" in ast.unparse(b) or "Protocol" in ast.unparse(b)
        for b in classes_of(path)[name].bases
    )


def subclasses() -> set[str]:
    """Those of concrete classes."""
    return {
        f"{name_of(path)}: {name}({base})"
        for path in files(*SHIPPED)
        for name in classes_of(path)
        for file, base in bases_of(path, name)
        if not is_interface(file, base)
    }


def test_no_concrete_class_is_subclassed() -> None:
    assert subclasses() == set()


def test_a_subclass_of_a_concrete_class_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Tile: pass\nclass AbstractTile: pass\n")
    two = tmp_path / "two.py"
    two.write_text(
        "from .one import Tile as T, AbstractTile\n"
        "class Wide(T): pass\nclass Narrow(AbstractTile): pass\nclass Other(Path): pass\n"
    )
    found = {
        name: [b for f, b in bases_of(two, name) if not is_interface(f, b)]
        for name in classes_of(two)
    }
    assert found == {"Wide": ["Tile"], "Narrow": [], "Other": []}


# --- writers -------------------------------------------------------------------------------------

# What statements are written for: nodes and phases of the loop IR, and statements of bodies.
WRITTEN = {
    *("Node", "Phase", "SumPhase", "PackPhase", "CopyPhase", "Stmt"),
    *(x.__name__ for x in (*get_args(loops.Node), *get_args(kernel.Stmt))),
}


@cache
def kept_by(owner: ast.ClassDef) -> frozenset[str]:
    """Names of classes whose instances a class keeps: made for, annotated as, or handed over to one of its attributes."""
    handed: dict[str, str] = {}
    found = set()
    for f in owner.body:
        if isinstance(f, ast.AnnAssign):
            found |= words_in(f.annotation)
        if isinstance(f, ast.FunctionDef) and f.name == "__init__":
            every = [*f.args.args, *f.args.kwonlyargs]
            handed |= {a.arg: ast.unparse(a.annotation) for a in every if a.annotation}
    for n in ast.walk(owner):
        targets = (
            n.targets
            if isinstance(n, ast.Assign)
            else [n.target]
            if isinstance(n, ast.AnnAssign)
            else []
        )
        if not any(is_own(x) for t in targets for x in ast.walk(t)):
            continue
        if isinstance(n, ast.AnnAssign):
            found |= words_in(n.annotation)
        if n.value is not None:
            found |= words_in(n.value)
            found |= {
                x
                for name in words_in(n.value) & handed.keys()
                for x in re.findall(r"\w+", handed[name])
            }
    return frozenset(found)


def is_own(x: ast.AST) -> bool:
    return isinstance(x, ast.Attribute) and isinstance(x.value, ast.Name) and x.value.id == "self"


def words_in(x: ast.AST) -> set[str]:
    """Names in an expression or annotation, which may be a text."""
    return set(re.findall(r"\w+", ast.unparse(x)))


def writes(owner: ast.ClassDef) -> bool:
    """True if a class takes nodes of the loop IR or statements of bodies, and writes statements."""
    methods = [f for f in owner.body if isinstance(f, ast.FunctionDef)]
    given = [a.annotation for f in methods if f.name != "__init__" for a in f.args.args]
    called = [ast.unparse(n.func) for n in ast.walk(owner) if isinstance(n, ast.Call)]
    return any(WRITTEN & words_in(a) for a in given if a) and any(
        re.search(r"\bw\.write$", x) for x in called
    )


def classes_of_text() -> dict[str, ast.ClassDef]:
    rooms = ("codegen/bodies", "codegen/write", "codegen/text")
    return {n: x for p in files(*rooms) for n, x in classes_of(p).items()}


def test_no_writer_holds_another() -> None:
    """Nor do any two classes of the text hold one another. A record may hold more of its kind."""
    classes = classes_of_text()
    held = {n: kept_by(x) & classes.keys() for n, x in classes.items()}
    assert {
        n: h
        for n, x in held.items()
        if n.endswith("Writer") and (h := {y for y in x if y.endswith("Writer")})
    } == {}
    held = {n: h - {n} for n, h in held.items()}
    reached = dict(held)
    for _ in classes:
        reached = {n: h.union(*(held[x] for x in h)) for n, h in reached.items()}
    assert [n for n, h in reached.items() if n in h] == []


def test_what_writes_is_called_a_writer() -> None:
    assert [n for n, x in classes_of_text().items() if writes(x) and not n.endswith("Writer")] == []


@pytest.mark.parametrize(
    "text",
    [
        "def __init__(self, w: Builder) -> None: self.scalar = BodyWriter(w)",
        "def __init__(self, w: Builder, body: BodyWriter) -> None: self.w, self.body = w, body",
        "def __init__(self, made: 'list[BodyWriter]') -> None: self.made = tuple(made)",
        "body: BodyWriter",
        "def write(self, w: Builder) -> None: self.open['x'] = BodyWriter(w)",
    ],
)
def test_a_writer_that_is_held_is_found(text: str) -> None:
    (owner,) = ast.parse(f"class LaneWriter:\n    {text}").body
    assert isinstance(owner, ast.ClassDef) and "BodyWriter" in kept_by(owner)


def test_a_writer_that_is_made_for_a_text_is_not_held() -> None:
    (owner,) = ast.parse(
        "class A:\n    def f(self, s: ir.While): BodyWriter(self.w).write(s); self.w.write(1)"
    ).body
    assert isinstance(owner, ast.ClassDef) and not kept_by(owner) and writes(owner)


# --- targets -------------------------------------------------------------------------------------


def test_nobody_else_asks_whether_a_target_is_a_gpu() -> None:
    asked = Counter(
        name_of(path)
        for path in files(*SHIPPED)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr == "is_gpu"
        if not name_of(path).startswith(GPU_PLACES)
    )
    assert asked == Counter()


# --- backends ------------------------------------------------------------------------------------


def test_nobody_asks_which_backend_a_device_is() -> None:
    """Differences are methods of its four interfaces (runtime/api/backend.py); only a backend's own folder names it."""
    named = [
        f"{name_of(path)}: {ast.unparse(node)}"
        for path in files(*(folder for folder in PRODUCT if folder != "runtime"))
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.ImportFrom) and BACKEND_DEVICE.search(node.module or ""))
        or (isinstance(node, ast.Compare) and "device.name" in ast.unparse(node))
    ]
    assert named == []


# --- code generation -----------------------------------------------------------------------------


def test_there_is_one_lowering() -> None:
    """The kind: a second road from decisions to text, for other callers or another kind of target."""
    (lowering,) = (ROOT / "codegen").glob("lower*.py")
    assert not {"CudaHelpers", "RESERVED_CUDA"} & names_in(lowering)
    made = {name_of(p) for p in files("codegen") for n in ast.walk(tree_of(p)) if makes_program(n)}
    assert made == {"codegen/lower.py", "codegen/write/grid_program.py"}


def names_in(path: Path) -> set[str]:
    """All names in a file."""
    return {n.id for n in ast.walk(tree_of(path)) if isinstance(n, ast.Name)}


def makes_program(node: ast.AST) -> bool:
    """True for a call that makes a program: a lowering ends with it."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "LoweredProgram"


# --- imports by name -----------------------------------------------------------------------------

# Who finds modules of ours by name: public names, commands, backends, families of choices, sequences. All of these are below them.
BY_NAME = ("__init__.py", "errors.py", "cli/commands.py", "runtime/device.py", "space/catalogue.py")
BY_NAME_FOLDERS = ("kernels/library/", "compat/")
OWN_NAME = re.compile(r"__(name|package)__")


def imports_by_name(tree: ast.Module) -> list[str]:
    """Imports of modules of ours whose names are made while the program runs, which import-linter does not see."""
    return [
        ast.unparse(n)
        for n in ast.walk(tree)
        if isinstance(n, ast.Call)
        and ast.unparse(n.func).rpartition(".")[2] in ("import_module", "__import__", "find_spec")
        if n.args and (is_relative(n.args[0]) or OWN_NAME.search(ast.unparse(n)))
    ]


def is_relative(name: ast.expr) -> bool:
    """True if a text begins with a dot, as far as it is written there."""
    match name:
        case ast.Constant(value=str(text)):
            return text.startswith(".")
        case ast.JoinedStr(values=[first, *_]) | ast.BinOp(left=first):
            return is_relative(first)
    return False


def test_nothing_is_imported_upwards_by_name() -> None:
    """The kind: a layer that reaches above itself by `import_module`, where no checker of layers looks."""
    paths = [*files(*PRODUCT), *ROOT.glob("*.py")]
    found = {name_of(p): x for p in paths if (x := imports_by_name(tree_of(p)))}
    allowed = {n for n in found if n in BY_NAME or n.startswith(BY_NAME_FOLDERS)}
    assert {name: x for name, x in found.items() if name not in allowed} == {}


@pytest.mark.parametrize(
    "text",
    [
        'import_module("....runtime.engine", __name__)',
        "importlib.import_module(name, __package__)",
        'import_module(f".{name}", package)',
        'import_module("." + name, package)',
        'import_module(f"{families.__name__}.{name}")',
        '__import__(__package__ + ".explorer")',
    ],
)
def test_an_import_by_name_is_found(text: str) -> None:
    assert imports_by_name(ast.parse(text)) == [ast.unparse(ast.parse(text))]


def test_calls_of_kernels_wait_for_no_lock_of_python() -> None:
    """Kind: an interrupt in `Condition.__enter__` leaves a future locked for ever (runtime/engine/work.py)."""
    for path in files("runtime/engine", "program", "kernels"):
        modules = [n for n in ast.walk(tree_of(path)) if isinstance(n, ast.Import | ast.ImportFrom)]
        named = {getattr(n, "module", None) or x.name for n in modules for x in n.names}
        assert not named & {"concurrent.futures", "queue.Queue"}, path
        assert not re.search(r"\bthreading\.(Condition|Event|Semaphore)\b", path.read_text()), path


def test_interrupts_are_for_users() -> None:
    """The kind: `KeyboardInterrupt` as control flow. The second signal raises it, and the command ends by it."""
    by_users = {"explorer/sitting.py", "runtime/forked.py", "cli/__init__.py", "cli/commands.py"}
    named = {
        name_of(path)
        for path in files(*PRODUCT)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Name) and node.id == "KeyboardInterrupt"
    }
    assert named == by_users


# --- experiments ---------------------------------------------------------------------------------


def patches(tree: ast.Module) -> list[str]:
    """Replacements of names of other modules: tools for that, `setattr`, and assignments to imported things."""
    imported: set[str] = set()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names]
            imported |= {(a.asname or a.name).split(".")[0] for a in node.names}
            found += [ast.unparse(node) for m in modules if set(m.split(".")) & PATCHERS]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [ast.unparse(node)] if node.func.id in ("setattr", "delattr") else []
        targets = (
            node.targets
            if isinstance(node, ast.Assign | ast.Delete)
            else [node.target]
            if isinstance(node, ast.AugAssign | ast.AnnAssign)
            else []
        )
        for target in targets:
            owner = target.value if isinstance(target, ast.Attribute) else None
            while isinstance(owner, ast.Attribute):
                owner = owner.value
            if isinstance(owner, ast.Name) and owner.id in imported:
                found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("path", files("experiments", "testing"), ids=name_of)
def test_experiments_patch_nothing(path: Path) -> None:
    assert patches(tree_of(path)) == []


@pytest.mark.parametrize(
    "text",
    [
        "from unittest.mock import patch",
        "import unittest",
        "from ..explorer import evaluation\nevaluation.JOBS_AHEAD = 0",
        "from ..runtime.building.queue import BuildQueue\nBuildQueue.take.limit = None",
        "from ..explorer import evaluation\nsetattr(evaluation, 'JOBS_AHEAD', 0)",
        "from ..explorer import evaluation\ndel evaluation.JOBS_AHEAD",
    ],
)  # fmt: skip
def test_a_patch_is_found(text: str) -> None:
    assert len(patches(ast.parse(text))) == 1


@pytest.mark.parametrize("path", files("experiments", "testing"), ids=name_of)
def test_experiments_use_no_private_name_of_the_product(path: Path) -> None:
    own = ROOT / path.relative_to(ROOT).parts[0]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            private = [a.name for a in node.names if a.name.startswith("_")]
            assert not private or source_of(path, node).is_relative_to(own), ast.unparse(node)


ABOVE_PASSES = ("bodies", "write")  # rooms of codegen
MEMORY = "text.facts"  # constants, which are no syntax


def knows_syntax(node: ast.ImportFrom) -> bool:
    """True for an import of syntax, or of its writers, by a module of a room of codegen."""
    module = node.module or ""
    room = module.split(".")[0]
    return node.level == 2 and (room in ABOVE_PASSES or (room == "text" and module != MEMORY))


def test_what_is_decided_about_loops_knows_no_syntax() -> None:
    """Only the list of passes does: some are about syntax."""
    for path in files("codegen/loops", "codegen/passes"):
        if path.name == "pipeline.py":
            continue
        modules = [n for n in ast.walk(tree_of(path)) if isinstance(n, ast.ImportFrom)]
        assert not [n.module for n in modules if knows_syntax(n)], path


# --- records and tests ---------------------------------------------------------------------------


def found_in(pattern: str, *folders: str) -> list[str]:
    """The lines of the product in which a pattern occurs."""
    return [
        f"{name_of(path)}: {line.strip()}"
        for path in files(*folders)
        for line in path.read_text().splitlines()
        if re.search(pattern, line)
    ]


def test_loops_on_sparse_fields_are_lowered_in_one_place() -> None:
    """Kind: bodies that are written out before anyone decides. Tasks have their loops as the program has them."""
    assert not found_in(r"\blower_trees\b|_sets_of_windows", "kernels/frontend", "kernels/tasks")
    assert found_in(r"return Active\(", "kernels")


def test_the_frontend_leaves_sparse_fields_as_they_are() -> None:
    """Kind: a decision about a kernel that the frontend takes. Sparse analyses it uses are of layouts and of what is apart."""
    allowed = {"disjoint", "layout", "naming", "recorded"}
    for path in files("kernels/frontend", "kernels/fields"):
        nodes = (n for n in ast.walk(tree_of(path)) if isinstance(n, ast.ImportFrom) and n.level)
        sources = (source_of(path, n) for n in nodes)
        used = {s.name for s in sources if s.parent == ROOT / "kernels" / "sparse"}
        assert used <= allowed, path


def test_statements_are_told_apart_by_their_identity() -> None:
    assert not found_in(r"\bid\(s\)", "kernels", "codegen")


def test_a_space_says_what_its_parts_are() -> None:
    """Whoever reads a candidate reads these: no field of theirs may be anything."""
    for name in ("candidate.py", "components.py", "draft.py"):
        for record in classes_of(ROOT / "space" / name).values():
            fields = [n for n in record.body if isinstance(n, ast.AnnAssign)]
            assert not [ast.unparse(f) for f in fields if "Any" in ast.unparse(f.annotation)]


# Tests of generated code ask loops (codegen/loops/ir.py), syntax (testing/syntax.py) or instructions (testing/assembly.py),
# run what was generated, or compare with a golden file.
# Names of what has text, and methods that look for a piece of one.
TEXTS = {"text", "texts", "source", "sources", "code", "body", "kernel", "words", "read_text"}
LOOKING = {"count", "find", "index", "partition", "split"}


def patterns_of(tree: ast.Module) -> int:
    """Calls of `re`, and pieces of text that are looked for in another."""
    return sum(is_pattern(n) or is_look(n) for n in ast.walk(tree))


def is_pattern(n: ast.AST) -> bool:
    return (
        isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and isinstance(n.func.value, ast.Name)
        and n.func.value.id == "re"
    )


def is_look(n: ast.AST) -> bool:
    """`"piece" in text`, `text.count("piece")` and the like, of a piece that is written there."""
    match n:
        case ast.Compare(left=piece, ops=[ast.In() | ast.NotIn()], comparators=[where]):
            pass
        case ast.Call(func=ast.Attribute(value=where, attr=attr), args=[piece, *_]) if (
            attr in LOOKING
        ):
            pass
        case _:
            return False
    is_text = isinstance(piece, ast.JoinedStr) or (
        isinstance(piece, ast.Constant) and isinstance(piece.value, str)
    )
    named = {x.id for x in ast.walk(where) if isinstance(x, ast.Name)}
    named |= {x.attr for x in ast.walk(where) if isinstance(x, ast.Attribute)}
    return is_text and bool(named & TEXTS)


def test_nothing_is_looked_for_in_generated_text() -> None:
    assert [p.name for p in files("tests/codegen") if patterns_of(tree_of(p))] == []


@pytest.mark.parametrize(
    "text",
    [
        "re.search('launch_', text)",
        "'__shared__' in source.text",
        "f'{x}_tile[' not in kernel",
        "source.text.count('__shared__')",
        "file.read_text().split('launch_')",
    ],
)
def test_a_look_into_text_is_found(text: str) -> None:
    assert patterns_of(ast.parse(text)) == 1
