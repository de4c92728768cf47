"""The operator table as programs in Taichi's language, run here or with Taichi itself.

    python -m kernelscape.testing.operator_programs FILE.npz CELL ...

saves what cells give, under their names: `add_i32_f64`. Needs NumPy and taichi only.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..kernels.ir.ops import OPS
from .operator_table import ROUNDED, Cell, cells, operands

LANGUAGE_TYPES = ("f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
DIVISIONS = (
    "floordiv",
    "mod",
    "raw_div",
    "raw_mod",
)  # by zero, and by -1 of the least, they end Taichi's process
STEP = 2  # every other edge of the first operand


def language_cells() -> list[Cell]:
    """The cells that are tried. Functions of floats on integers, powers and C's divisions of small ones end Taichi's process."""
    return [c for c in cells(LANGUAGE_TYPES) if not _ends_taichi(c)]


def _ends_taichi(c: Cell) -> bool:
    types = {c.a, c.b or c.a}
    if c.op in ("pow", "raw_div", "raw_mod"):
        is_small = any(int(t[1:]) < 32 for t in types)
        return is_small or (c.op == "raw_mod" and bool(types & {"f32", "f64"}))
    if OPS[c.op].takes == "floats":
        return not types <= {"f32", "f64"}
    return False


def name_of(cell: Cell) -> str:
    """The name of a cell in a file."""
    return "_".join(filter(None, (cell.op, cell.a, cell.b)))


def drawn(a: str, b: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Half of the pairs of edges of two types."""
    x, y = operands(a, b)
    return x[::STEP], y[::STEP]


def results_of(asked: Sequence[Cell]) -> dict[str, np.ndarray[Any, Any]]:
    """The results of cells, all of them divisions or none, in one kernel: as f64, and as i64. `taichi` is what `import` finds."""
    ti = importlib.import_module("taichi")
    ti.init(arch=ti.cpu, fast_math=False, default_fp=ti.f64, log_level="error")
    types = [t for t in LANGUAGE_TYPES if any(t in (c.a, c.b) for c in asked)]
    n = len(drawn("f32", "f32")[0])
    lines = ["import taichi as ti", "", "@ti.kernel", "def table():", f"    for i in range({n}):"]
    fields: dict[str, Any] = {}
    for t in types:
        for name, values in zip("ab", drawn(t, t), strict=True):
            if name == "b" and asked[0].op in DIVISIONS and values.dtype.kind != "f":
                values = np.where((values == 0) | (values + 1 == 0), 3, values).astype(values.dtype)
            fields[f"{name}_{t}"] = ti.field(getattr(ti, t), n)
            fields[f"{name}_{t}"].from_numpy(values)
    for k, c in enumerate(asked):
        fields[f"f_{k}"], fields[f"i_{k}"] = ti.field(ti.f64, n), ti.field(ti.i64, n)
        lines += [
            f"        x_{k} = {c.text('ti')}",
            f"        f_{k}[i] = ti.cast(x_{k}, ti.f64)",
            f"        i_{k}[i] = ti.cast(x_{k}, ti.i64)",
        ]
    with tempfile.TemporaryDirectory(prefix="kernelscape-operators-") as folder:
        file = Path(folder) / "operator_program.py"
        file.write_text("\n".join(lines) + "\n")
        spec = importlib.util.spec_from_file_location("operator_program", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        vars(module).update(fields)
        spec.loader.exec_module(module)
        module.table()
    found = {}
    for k, c in enumerate(asked):
        floats, whole = fields[f"f_{k}"].to_numpy(), fields[f"i_{k}"].to_numpy()
        found[name_of(c)] = np.stack([floats.view(np.int64), whole])
    return found


def differs_from_taichi(c: Cell) -> bool:
    """True if the language differs from Taichi on purpose: where C leaves values open, in powers whose exponent is negative or
    no float, and where Taichi is wrong. That is in quotients of bytes (7 // 3 is 1), in remainders of unsigned numbers by raw_mod,
    which it takes for signed ones, in the absolute value of the least i32, and where NaN differs from a number, which it denies.
    """
    types = {c.a, c.b}
    if c.op == "pow":
        return not types <= {"f32", "f64"}
    if c.op == "raw_mod":
        return any(t.startswith("u") for t in types if t)
    is_of_bytes = types <= {"i8", "u8"} and c.op in ("floordiv", "mod")
    has_nan = not types.isdisjoint(("f32", "f64")) and c.op == "ne"
    is_least = c.op == "abs" and c.a == "i32"
    return is_of_bytes or has_nan or is_least or c.op in ("shl", "shr", "bit_shr", "min", "max")


def wrong_results(c: Cell, got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> Any:
    """The elements at which a cell of ours is not that of Taichi: as a float, and as a whole number where that holds it. Taichi has
    0 for numbers so small that they have fewer digits.
    """
    ours, theirs = got[0].view(np.float64), want[0].view(np.float64)
    types = {c.a, c.b or c.a}
    is_exact = c.op in ROUNDED or types.isdisjoint(("f32", "f64"))
    rtol = 0.0 if is_exact else 1e-6 if "f32" in types else 1e-14
    least = 2.0**-126 if "f32" in types else 2.0**-1022
    numbers = (*drawn(c.a, c.b or c.a), ours)
    with np.errstate(all="ignore"):
        same = np.isclose(ours, theirs, rtol=rtol, atol=0, equal_nan=True)
        is_small = np.logical_or.reduce(
            [(x != 0) & (abs(x.astype(float)) < least) for x in numbers]
        )
        if c.op in ("floordiv", "mod"):
            quotient = numbers[0].astype(float) / numbers[1].astype(float)
            is_small |= (quotient != 0) & (abs(quotient) < least)
        is_held = (np.abs(theirs) < 2.0**63) & is_exact
    return np.flatnonzero(~is_small & (~same | (is_held & (got[1] != want[1]))))


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    file, *names = arguments
    known = {name_of(c): c for c in language_cells()}
    found = results_of([known[name] for name in names])
    np.savez(file, names=np.array(list(found)), values=np.stack(list(found.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
