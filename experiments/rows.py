"""Tables of rows: each row is made in a process of its own, kept as JSON, and written with all others after every row.

A row is JSON values: its job ("name", "sizes", "dtype"), "options", and "status": "ok" with what was found, or "failed" with "why".
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ..kernels.library import load, names
from ..runtime.device import cache_folder
from .conditions import stamp_text
from .fresh_caches import TARGETS, calibrations, fresh_caches
from .writing import parser_of, read_results, table, write_results

Row = dict[str, Any]
Options = TypeVar("Options")  # a dataclass


class Sized(Protocol):
    """What a row can be about."""

    def complete(self, sizes: dict[str, int]) -> dict[str, int]:
        """All of its sizes, where some are given. Raises ValueError."""


class Job(NamedTuple):
    """What a row is about: a library sequence at a size."""

    name: str
    sizes: dict[str, int]
    dtype: str = "f32"

    @staticmethod
    def of(row: Row) -> Job:
        """Rows of tables that have one type only may leave it out."""
        return Job(row["name"], row["sizes"], row.get("dtype", "f32"))

    @property
    def key(self) -> str:
        """As `--only` takes it."""
        extents = ",".join(f"{k}={v}" for k, v in self.sizes.items())
        return f"{self.name}:{extents}" + ("" if self.dtype == "f32" else f":{self.dtype}")

    @property
    def numpy(self) -> Any:
        """The type of its elements, as NumPy has it."""
        return {"f32": np.float32, "f64": np.float64}[self.dtype]

    @property
    def volume(self) -> int:
        volume = 1
        for extent in self.sizes.values():
            volume *= extent
        return volume


def title(row: Row) -> str:
    """Sequence and sizes for people: axpy 2^20, gemver 4096^2, sgemv 1009x4093."""
    extents = list(row["sizes"].values())
    if len(extents) == 1:
        power = extents[0].bit_length() - 1
        return f"{row['name']} " + (f"2^{power}" if extents[0] == 1 << power else str(extents[0]))
    if len(set(extents)) == 1:
        return f"{row['name']} {extents[0]}^{len(extents)}"
    return f"{row['name']} " + "x".join(map(str, extents))


Columns = Mapping[str, Callable[[Any], str]]
"""The columns of a table by their heads: what a row has there."""


def table_of(columns: Columns, rows: Iterable[Any]) -> str:
    """The rows as Markdown. Two columns may have one head: blanks around it do not count."""
    body = [[cell(r) for cell in columns.values()] for r in rows]
    return table([head.strip() for head in columns], body)


def page(
    heading: str,
    protocol: str,
    columns: Columns,
    rows: Sequence[Row],
    *,
    notes: Callable[[list[Row]], list[str]] = lambda good: [],
    lines: Callable[[Row], Iterable[Row]] = lambda row: [row],
    by_time: bool = False,
) -> str:
    """The page of a table: what was done, the machine and `notes` on it, the `lines` of each row, and why others were not made.

    The machine is as it was when the last row was taken: the last of the table, or the last `by_time`.
    """
    good = [r for r in rows if r["status"] == "ok"]
    parts = [f"# {heading}", "", protocol, ""]
    if good:
        last = max(good, key=lambda r: str(r["stamp"]["taken"])) if by_time else good[-1]
        parts += [stamp_text(last["stamp"]), *notes(good)]
    parts += ["", table_of(columns, [x for r in good for x in lines(r)]), ""]
    parts += [f"- {title(r)} failed: {r['why']}" for r in rows if r["status"] != "ok"]
    return "\n".join([*parts, ""])


def parse_jobs(
    text: str,
    table: Sequence[Job] = (),
    *,
    known: Iterable[str] = (),
    dtypes: Sequence[str] = ("f32",),
    find: Callable[[str], Sized] = load,
) -> list[Job]:
    """What NAME (all its rows of the `table`), NAME:n=2^20,... or NAME:n=...:f64 stands for, of the `known` sequences (default:
    those of the library), which `find` has by name. Raises ValueError.
    """
    name, *rest = text.lower().split(":")
    known = tuple(known) or names()
    if name not in known:
        raise ValueError(f"no sequence {name!r}: there are {', '.join(known)}")
    if not rest:
        jobs = [job for job in table if job.name == name]
        if not jobs:
            raise ValueError(f"the table has no row {text!r}: give sizes as well")
        return jobs
    dtype = rest[1] if len(rest) == 2 else dtypes[0]
    if len(rest) > 2 or dtype not in dtypes:
        raise ValueError(f"{':'.join(rest[1:])!r} is not {' or '.join(dtypes)}")
    sizes = dict(_size(part) for part in rest[0].split(","))
    return [Job(name, find(name).complete(sizes), dtype)]


def wanted_jobs(
    parser: argparse.ArgumentParser, texts: Sequence[str], table: Sequence[Job], **which: Any
) -> list[Job]:
    """What the texts stand for (see `parse_jobs`), without any the whole table; a mistake ends the program."""
    try:
        return [job for text in texts for job in parse_jobs(text, table, **which)] or list(table)
    except ValueError as e:
        parser.error(str(e))


def _size(text: str) -> tuple[str, int]:
    key, _, number = text.partition("=")
    base, _, power = number.partition("^")
    try:
        return key, int(base) ** int(power or 1)
    except ValueError:
        raise ValueError(f"{text!r} is not a size such as n=4096 or n=2^20") from None


# --- one row -------------------------------------------------------------------------------------


def run_row(module: str, job: Job, options: Any, limit_s: float) -> Row:
    """The row that `python -m MODULE --child` of this folder makes. One that fails says why."""
    asked = job._asdict() | {"options": asdict(options)}
    made = in_fresh_process(module, asked, limit_s)
    return made if isinstance(made, dict) else {"status": "failed", **asked, "why": made}


def in_fresh_process(module: str, asked: dict[str, Any], limit_s: float) -> dict[str, Any] | str:
    """What `python -m MODULE --child ASKED` of this folder prints last, or why it printed nothing.

    The child has an empty folder of builds (what an earlier search compiled must not count as this
    one's speed) and no setting of OpenBLAS.
    """
    command = [sys.executable, "-m", f"{__package__}.{module}", "--child", json.dumps(asked)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    with tempfile.TemporaryDirectory(prefix="kernelscape-table-") as scratch:
        environment |= fresh_caches(Path(scratch))
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=limit_s
            )
        except subprocess.TimeoutExpired:
            return f"no end within {limit_s:.0f} s"
        except OSError as e:  # too much to say in one argument
            return str(e)
        fresh = calibrations(Path(scratch))
        if fresh.exists():  # calibrations add up
            shutil.copytree(fresh, cache_folder() / TARGETS, dirs_exist_ok=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no word"]
        return f"exit {done.returncode}: {lines[-1]}"
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return made


# --- the table -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """The rows that a machine has for one page of results: `order` has those that it is meant to have, others come behind them."""

    file: str
    order: Sequence[Job]
    report: Callable[[dict[str, Any]], str]  # of {"rows": ...} and what else the file holds
    folder: Path | None = None
    machine: str | None = None  # its key, where it is not this one alone

    def stored(self) -> dict[str, Any]:
        """What the file holds; no rows where there is no file yet."""
        return {"rows": []} | read_results(self.file, self.folder, self.machine)

    def missing(self, wanted: Sequence[Job], again: bool) -> list[Job]:
        """Those of `wanted` that are not there or failed; all of them to be made `again`, the oldest first."""
        there = {Job.of(r).key: r for r in self.stored()["rows"] if r["status"] == "ok"}
        if not again:
            return [job for job in wanted if job.key not in there]
        taken = {key: str(r.get("stamp", {}).get("taken", "")) for key, r in there.items()}
        return sorted(wanted, key=lambda job: taken.get(job.key, ""))

    def make(
        self,
        missing: Sequence[Job],
        make: Callable[[Job], Row | None],
        say: Callable[[Row], str],
        **beside: Any,
    ) -> dict[str, Any]:
        """Make rows, writing after each; all that the file holds then, with what is `beside` the rows. A row that is None ends
        it. `say` is what to print of a good row.
        """
        made = self.stored() | beside
        rows = {Job.of(r).key: r for r in made["rows"]}
        order = [job.key for job in self.order]
        for job in missing:
            started_s = time.monotonic()
            row = make(job)
            if row is None:
                break
            said = say(row) if row["status"] == "ok" else f"failed: {row['why']}"
            print(f"{job.key}: {said} ({time.monotonic() - started_s:.0f} s)", flush=True)
            rows[job.key] = row
            keys = [k for k in order if k in rows] + sorted(rows.keys() - set(order))
            made["rows"] = [rows[k] for k in keys]
            write_results(self.file, self.report, made, self.folder, self.machine)
        return made


def table_parser(description: str | None, only: str) -> argparse.ArgumentParser:
    """The options of every table; `only` says what names a row."""
    parser = parser_of(description)
    parser.add_argument("--only", nargs="*", default=(), help=only)
    parser.add_argument("--again", action="store_true", help="also rows that are there already")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser
