"""A question that a table answers: its command line, its rows, which are kept, and its page, written after every row."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from math import inf
from pathlib import Path
from typing import Any, Generic

from . import rows
from .rows import Job, Options, Row, Sized
from .writing import Report


def asked(default: Any, about: str | None = None, *, least: float | None = None, **how: Any) -> Any:
    """A field of options that the command line asks for; numbers are positive, or at least `least`.

    `how` may give the `option` that has another name, and a `type` that is not the default's.
    """
    return field(default=default, metadata={"about": about, "least": least, **how})


def _asked_of(kind: Any) -> Iterator[tuple[str, Field[Any]]]:
    """The fields that the command line asks for, by option."""
    for f in fields(kind):
        if "about" in f.metadata:
            yield f.metadata.get("option", f"--{f.name}").replace("_", "-"), f


def add_options(parser: argparse.ArgumentParser, kind: Any) -> None:
    """Gives a parser the arguments that a class of options asks for."""
    for option, f in _asked_of(kind):
        how: dict[str, Any] = {"dest": f.name, "default": f.default, "help": f.metadata["about"]}
        if isinstance(f.default, bool):
            parser.add_argument(option.replace("--", "--no-"), action="store_false", **how)
        elif isinstance(f.default, tuple):
            parser.add_argument(option, nargs="*", **how)
        else:
            parser.add_argument(option, type=f.metadata.get("type", type(f.default)), **how)


def options_of(
    parser: argparse.ArgumentParser, given: argparse.Namespace, kind: type[Options]
) -> Options:
    """The options that were given; a number that means nothing ends the program."""
    values = {}
    for option, f in _asked_of(kind):
        value, least = getattr(given, f.name), f.metadata["least"]
        if isinstance(value, int | float) and not isinstance(value, bool):
            if least is None and value <= 0:
                parser.error(f"{option} must be positive, not {value}")
            if least is not None and value < least:
                parser.error(f"{option} must be at least {least:g}, not {value}")
        values[f.name] = value
    return kind(**values)


def failures(made: Sequence[Row]) -> list[str]:
    """The rows that failed, one sentence each."""
    return [f"{Job.of(r).key} failed: {r['why']}" for r in made if r["status"] != "ok"]


@dataclass(frozen=True, kw_only=True)
class Question(Generic[Options]):
    """A table of results, whose rows are made by `make`, each in a process of its own: a child of `file`, which is a module, too.

    `row` makes a row of several such children, which `answer` answers. `missed` says what the rows are to have and have not.
    """

    file: str
    doc: str | None
    order: Sequence[Job]
    options: type[Options]
    report: Report
    say: Callable[[Row], str]  # of a good row
    make: Callable[[Job, Options], Row] | None = None
    limit_s: Callable[[Job, Options], float] = lambda job, options: 600.0  # of a child
    row: Callable[[Job, Options], Row] | None = None
    answer: Callable[[Row, Options], Row] | None = None
    missed: Callable[[Sequence[Row]], list[str]] = failures
    dtypes: Sequence[str] = ("f32",)
    works: Mapping[str, Sized] | None = None  # default: the library

    def parser(self) -> argparse.ArgumentParser:
        """Its arguments, to which a script may add."""
        types = "[:f64]" if len(self.dtypes) > 1 else ""
        parser = rows.table_parser(self.doc, f"NAME or NAME:n=2^20,...{types}")
        more = "minutes after which no row begins; the next call goes on"
        parser.add_argument("--piece", type=float, default=inf, help=more)
        add_options(parser, self.options)
        return parser

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """The command line; the exit status."""
        return self.run(self.parser(), arguments)

    def run(self, parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> int:
        """Makes what the arguments ask for; 1 where something is missed."""
        given = parser.parse_args(arguments)
        if given.child:
            print(json.dumps(self._answered(json.loads(given.child))))
            return 0
        options = options_of(parser, given, self.options)
        which: dict[str, Any] = {"dtypes": self.dtypes}
        if self.works is not None:
            which |= {"known": tuple(self.works), "find": self.works.__getitem__}
        wanted = rows.wanted_jobs(parser, given.only, self.order, **which)
        end_s = time.monotonic() + 60 * given.piece
        missed = self.missed(self.table(wanted, options, given.again, given.results, end_s))
        print("\n".join(f"missed: {line}" for line in missed) or "nothing is missed")
        return 1 if missed else 0

    def table(
        self,
        wanted: Sequence[Job],
        options: Options,
        again: bool = False,
        folder: Path | None = None,
        end_s: float = inf,
    ) -> list[Row]:
        """Makes the rows that are missing, writing after each, as long as the clock is before `end_s`; all rows of the results."""
        results = rows.Table(self.file, self.order, self.report, folder)
        missing = results.missing(wanted, again)
        make = self.row or self.child

        def in_time(job: Job) -> Row | None:
            return make(job, options) if time.monotonic() < end_s else None

        made: list[Row] = results.make(missing, in_time, self.say)["rows"]
        return made

    def child(self, job: Job, options: Options) -> Row:
        """The row that a process of its own makes. One that fails says why. Of paths it holds the last part only."""
        made = rows.run_row(self.file, job, options, self.limit_s(job, options))
        given = made["options"].items()
        return made | {"options": {k: Path(x).name if isinstance(x, str) else x for k, x in given}}

    def _answered(self, asked: Row) -> Row:
        """What a child makes of what it was asked."""
        options = self.options(**asked["options"])
        if self.answer is not None:
            return self.answer(asked, options)
        assert self.make is not None
        return {"status": "ok", **asked, **self.make(Job.of(asked), options)}
