"""The tuned store: results of searches, which several machines may share.

A row is the result for a problem on a device. Writers append, and readers take the best. Results for components of problems are
in the same table, but no rows of the store: they are known by content alone, and few of each are kept. The store is SQLite on a
local disk, or PostgreSQL for a team: the environment variable KERNELSCAPE_STORE has its address. A row may be wrong or hostile: an
implementation is rebuilt from its decisions, and verified before it runs.
"""

from __future__ import annotations

import hashlib
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar, final

import msgspec
import sqlalchemy as sa
from sqlalchemy import exc

from .record import READ, BestFile, RecordError

ADDRESS = "KERNELSCAPE_STORE"
FORMAT = 1  # of a row
_SWITCHES = ("1", "true", "yes", "on", "0", "false", "no", "off")
_BUSY_S = (
    20.0  # for which writers of other processes, and a server that starts again, are waited for
)
_AGAIN_S = 0.2
_PER_STATEMENT = 200  # rows that are removed at once
KEPT = 3  # results of a component on a device
_ROWS = sa.Table(
    "results",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("digest", sa.String(64), nullable=False, unique=True),  # equal results are one row
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("sequence", sa.Text, nullable=False),
    sa.Column("dtype", sa.String(16), nullable=False),
    sa.Column("shape", sa.Text, nullable=False),
    sa.Column("device", sa.Text, nullable=False),
    sa.Column("problem", sa.String(64), nullable=False),
    sa.Column("component", sa.Text, nullable=False),
    sa.Column("time_ns", sa.Double, nullable=False),
    sa.Column("taken", sa.String(32), nullable=False),
    sa.Column("result", sa.Text, nullable=False),  # a best.json
    sa.Index("results_by_sequence", "sequence", "dtype"),
)
_NEWER = "a newer version wrote it"
_T = TypeVar("_T")
Level = Literal["exact", "nearest", "elsewhere"]


@dataclass(frozen=True)
class TunedKey:
    """Key of a tuned implementation: sequence, dtype, device and `shape` (sizes in the sequence's own order)."""

    family: str  # the sequence, whatever its sizes
    dtype: str
    shape: tuple[int, ...]
    device: str  # `Conditions.machine`


@dataclass(frozen=True)
class Match:
    """Result of a lookup in the store; `level` is one of three words.

    "exact": tuned for this shape. "nearest": tuned for the shape at `distance`, the largest |log2| ratio of a size. "elsewhere":
    tuned on another device. The last two must be measured again before their time is trusted.
    """

    level: Level
    best: BestFile
    shape: tuple[int, ...]
    distance: float


@dataclass(frozen=True)
class Row:
    """A stored result without its decisions. `error` is a sentence if this version cannot use it."""

    number: int
    key: TunedKey
    problem: str
    time_ns: float
    taken: str  # UTC, ISO 8601
    error: str = ""


class _Exported(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One line of an exported file: a stored result, with its component ("": a whole problem) and the format."""

    format: int
    component: str
    best: BestFile


@final
class TunedStore:
    """Store of tuned implementations; `address` is a file, or the URL of a database.

    Raises RecordError, a sentence, if the store cannot be used.
    """

    def __init__(self, address: str | Path | None = None) -> None:
        self._url = _url(store_address() if address is None else address)
        self.name = (
            self._url.render_as_string(hide_password=True)
            if self.is_shared
            else str(self._url.database)
        )
        if not self.is_shared:
            try:
                Path(self.name).parent.mkdir(parents=True, exist_ok=True)
            except OSError as e:
                raise RecordError(f"{self.name} cannot be made: {e.strerror}") from e
        self._engine, self._was_there = _engine(self._url), False
        self._do(self._prepare)

    @property
    def is_shared(self) -> bool:
        """True if the store is a database of a team."""
        return self._url.get_backend_name() != "sqlite"

    def put(self, best: BestFile) -> None:
        """Stores a result. A shared store receives no names of files on this machine."""
        row = _row_of(_without_places(best) if self.is_shared else best, "")
        self._do(lambda c: _insert(c, row))

    def put_component(self, best: BestFile, component: str) -> None:
        """Stores a result of a component, known by its content.

        Of all that a device has for this component, the store keeps the newest and the best others, `KEPT` in all.
        """
        row = _row_of(_without_places(best), component)

        def put(connection: sa.Connection) -> None:
            _remove([x.id for x in self._others(connection, row)][KEPT - 1 :], connection)
            _insert(connection, row)

        self._do(put)

    def lookup(self, key: TunedKey) -> Match | None:
        """Returns the best result for the shape, else for the nearest shape of the same sequence, dtype and device.

        If the device has none, results of devices of the same kind are returned. Unreadable rows are left out.
        """
        rows = self._rows(_ROWS.c.sequence == key.family, _ROWS.c.dtype == key.dtype)
        rows = [r for r in rows if not r.error and _is_near(r.key, key)]
        for group in sorted(_grouped(rows), key=lambda rows: _nearness(rows[0].key, key)):
            for row in group:
                with suppress(RecordError):
                    best = self.read(row.number)
                    distance = _distance(key.shape, row.key.shape)
                    return Match(_level(row.key, key, distance), best, row.key.shape, distance)
        return None

    def of_file(self, stem: str, device: str) -> tuple[BestFile | RecordError, ...]:
        """Returns the results of all functions of a user's file on a device, for any shapes.

        `stem` is the file's name without .py. An unreadable result is replaced by its error.
        """
        rows = self._rows(
            _ROWS.c.device == device, _ROWS.c.sequence.startswith(f"{stem}:", autoescape=True)
        )
        groups = sorted(_grouped(rows), key=lambda rows: (rows[0].key.family, rows[0].key.shape))
        return tuple(self._first(group) for group in groups)

    def components(self, device: str) -> dict[str, list[int]]:
        """Returns for each component, the fastest first, the numbers of its results on a device: at most `KEPT`, the fastest first.

        `read_component` takes a number. Results whose words are odd are left out.
        """
        query = (
            sa.select(_ROWS.c.id, _ROWS.c.component, _ROWS.c.time_ns)
            .where(_ROWS.c.device == device, _ROWS.c.component != "")
            .order_by(_ROWS.c.id)
        )
        found: dict[str, list[tuple[float, int]]] = {}
        for number, name, time_ns in self._do(lambda c: c.execute(query).all()):
            if isinstance(name, str) and isinstance(time_ns, float):
                found.setdefault(name, []).append((time_ns, number))
        fastest = sorted((sorted(some), name) for name, some in found.items())
        return {name: [n for _, n in some[:KEPT]] for some, name in fastest}

    def rows(self) -> list[Row]:
        """Returns all rows, the oldest first; components are none."""
        return self._rows()

    def read(self, number: int) -> BestFile:
        """Returns the result in row `number`. Raises RecordError if this version cannot use it or there is none."""
        return self._read(number, _ROWS.c.component == "")

    def read_component(self, number: int) -> BestFile:
        """Returns a result of a component by its number in `components`. Raises RecordError as `read` does."""
        return self._read(number, _ROWS.c.component != "")

    def _read(self, number: int, condition: sa.ColumnElement[bool]) -> BestFile:
        query = sa.select(_ROWS).where(_ROWS.c.id == number, condition)
        found = self._do(lambda c: c.execute(query).one_or_none())
        if found is None:
            raise RecordError(f"{self.name} has no row {number}")
        return self._decode(found)

    def _others(self, connection: sa.Connection, row: dict[str, Any]) -> list[Any]:
        """Returns the other results of a row's component, the fastest first; those that cannot be read come last."""
        query = sa.select(_ROWS).where(
            _ROWS.c.component == row["component"],
            _ROWS.c.device == row["device"],
            _ROWS.c.digest != row["digest"],
        )

        def cost(x: Any) -> tuple[bool, float, int]:
            try:
                return False, self._decode(x).time_ns, -x.id
            except RecordError:
                return True, 0.0, -x.id

        return sorted(connection.execute(query).all(), key=cost)

    def exported(self) -> Iterator[bytes]:
        """Yields one line of JSON per row that this version can use, without names of files on this machine."""
        for row in self.rows():
            with suppress(RecordError):
                best = _without_places(self.read(row.number))
                line = _Exported(format=FORMAT, component="", best=best)
                yield msgspec.json.encode(line)

    def add(self, lines: Iterable[bytes], name: str) -> tuple[int, int]:
        """Stores exported lines: all of them, or none if one is unreadable.

        Returns the number of new rows, and of rows already stored. Raises RecordError with `name` and the line's number.
        """
        rows = [_row_of(x.best, "") for x in _exported(lines, name) if not x.component]

        def add(connection: sa.Connection) -> int:
            return sum(_insert(connection, row) for row in rows)

        n_new = self._do(add)
        return n_new, len(rows) - n_new

    def prune(self) -> int:
        """Removes unreadable rows, and rows that are not the best of their key. Returns the number removed."""
        rows = self.rows()
        kept = {r.number for r in rows if r.error.startswith(_NEWER)}
        for group in _grouped(r for r in rows if not r.error):
            found = (r for r in group if isinstance(self._first([r]), BestFile))
            kept |= {r.number for r in islice(found, 1)}
        gone = [r.number for r in rows if r.number not in kept]
        for k in range(0, len(gone), _PER_STATEMENT):
            self._do(partial(_remove, gone[k : k + _PER_STATEMENT]))
        return len(gone)

    def close(self) -> None:
        """Closes the store. Safe to call twice."""
        self._engine.dispose()

    def __enter__(self) -> TunedStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, t: TracebackType | None
    ) -> None:
        self.close()

    def _rows(self, *conditions: sa.ColumnElement[bool]) -> list[Row]:
        query = (
            sa.select(*(c for c in _ROWS.c if c.name != "result"))
            .where(_ROWS.c.component == "", *conditions)
            .order_by(_ROWS.c.id)
        )
        return [self._row(x) for x in self._do(lambda c: c.execute(query).all())]

    def _row(self, x: Any) -> Row:
        words = (x.sequence, x.dtype, x.device, x.shape, x.problem, x.taken)
        if not all(isinstance(w, str) for w in words) or not _are_numbers(x.format, x.time_ns):
            # SQLite keeps a value of any type in a column of any other.
            key = TunedKey(str(x.sequence), str(x.dtype), (), str(x.device))
            return Row(x.id, key, str(x.problem), math.inf, str(x.taken), "its words are odd")
        error = f"{_NEWER} ({x.format})" if x.format > FORMAT else ""
        try:
            key = TunedKey(x.sequence, x.dtype, _shape(x.shape), x.device)
        except ValueError:
            key, error = TunedKey(x.sequence, x.dtype, (), x.device), "its shape is none"
        return Row(x.id, key, x.problem, x.time_ns, x.taken, error)

    def _first(self, rows: Sequence[Row]) -> BestFile | RecordError:
        """Returns the first readable result of `rows`, else the error of the first row."""
        first: RecordError | None = None
        for row in rows:
            try:
                return self.read(row.number)
            except RecordError as e:
                first = first or e
        assert first is not None  # there is a row
        return first

    def _decode(self, row: Any) -> BestFile:
        where = f"row {row.id} of {self.name}"
        if not isinstance(row.result, str) or not _are_numbers(row.format, row.time_ns):
            raise RecordError(f"{where} cannot be read: its words are odd")
        if row.format > FORMAT:
            raise RecordError(f"{where}: {_NEWER} ({row.format})")
        try:
            best = msgspec.json.decode(row.result, type=BestFile)
        except (msgspec.DecodeError, RecursionError) as e:
            raise RecordError(f"{where} cannot be read: {e}") from e
        if best.schema not in READ:
            raise RecordError(
                f"{where} has schema {best.schema}, not {' or '.join(map(str, READ))}"
            )
        told = _row_of(best, row.component)
        for name in ("sequence", "dtype", "shape", "device", "problem", "time_ns"):
            if told[name] != getattr(row, name):
                raise RecordError(f"{where} is of another {name} than its result")
        return best

    def _prepare(self, connection: sa.Connection) -> None:
        with suppress(exc.IntegrityError, exc.ProgrammingError):  # another process makes it now
            _ROWS.metadata.create_all(connection)
        if not self.is_shared:
            _adopt_older(connection)

    def _do(self, action: Callable[[sa.Connection], _T]) -> _T:
        """Returns the result of `action`, run in its own transaction.

        It is repeated if another process stored the same row meanwhile, and while a known server restarts.
        """
        until_s = time.monotonic() + _BUSY_S
        while True:
            try:
                with self._engine.begin() as connection:
                    found = action(connection)
            except exc.IntegrityError as e:
                failed: exc.SQLAlchemyError = e
            except exc.OperationalError as e:
                failed = e
                if not (self.is_shared and self._was_there):
                    raise self._error(e) from e
                self._engine.dispose()
                time.sleep(_AGAIN_S)
            except exc.SQLAlchemyError as e:
                raise self._error(e) from e
            else:
                self._was_there = True
                return found
            if time.monotonic() > until_s:
                raise self._error(failed) from failed

    def _error(self, e: exc.SQLAlchemyError) -> RecordError:
        reason = str(e.orig if isinstance(e, exc.DBAPIError) else e).strip().partition("\n")[0]
        return RecordError(f"{self.name} is no tuned store that can be used: {reason}")


def default_store() -> Path:
    """Returns the path of the user's own store."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "kernelscape" / "tuned.sqlite"


def store_address() -> str | Path:
    """Returns the address of the store in use: that of KERNELSCAPE_STORE, else the user's own.

    The variable may also be "on" or "off", as in a setting of the command. Raises RecordError for any other text.
    """
    given = os.environ.get(ADDRESS, "").strip()
    if "/" in given:
        return given
    if given and given.lower() not in _SWITCHES:
        raise RecordError(
            f"{ADDRESS}={given:.60} is neither on nor off nor a store: a file has a / (./{given:.60})"
        )
    return default_store()


def _url(address: str | Path) -> sa.URL:
    text = str(address)
    if "://" not in text:
        return sa.URL.create("sqlite", database=text)
    try:
        url = sa.make_url(text)
    except exc.ArgumentError:
        raise RecordError(f"the address of the store ({ADDRESS}) is no URL of a database") from None
    backend = url.get_backend_name()
    if backend == "postgres":  # as libpq has it
        backend = "postgresql"
    if backend not in ("sqlite", "postgresql"):
        raise RecordError(
            f"the store is a file, sqlite://... or postgresql://..., not {url.drivername}://"
        )
    return url.set(drivername="postgresql+psycopg" if backend == "postgresql" else "sqlite")


def _engine(url: sa.URL) -> sa.Engine:
    if url.get_backend_name() == "sqlite":
        engine = sa.create_engine(url, connect_args={"timeout": _BUSY_S})
        sa.event.listen(engine, "connect", _configure_sqlite)
        return engine
    try:
        return sa.create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 10})
    except ModuleNotFoundError as e:
        raise RecordError(
            f"a store in PostgreSQL needs the package {e.name}: pip install 'kernelscape[store]'"
        ) from e


def _configure_sqlite(connection: sqlite3.Connection, record: object) -> None:
    """Sets up a new SQLite connection so that several processes can write, and that odd bytes in a row do not hide the others."""
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    with suppress(sqlite3.OperationalError):  # a file that is read only, or busy
        connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")


def _adopt_older(connection: sa.Connection) -> None:
    """Imports the table of earlier versions, which stored the best result of each key."""
    if not sa.inspect(connection).has_table("tuned"):
        return
    for (text,) in connection.execute(sa.text("select best from tuned")).all():
        with suppress(msgspec.DecodeError):  # it was of no use before
            _insert(connection, _row_of(msgspec.json.decode(text, type=BestFile), ""))
    connection.execute(sa.text("drop table if exists tuned"))


def _insert(connection: sa.Connection, row: dict[str, Any]) -> bool:
    """Stores a row unless an equal one exists. True if it is new."""
    is_there = sa.exists().where(_ROWS.c.digest == row["digest"])
    values = sa.select(*(sa.literal(x, _ROWS.c[n].type) for n, x in row.items())).where(~is_there)
    return connection.execute(sa.insert(_ROWS).from_select(list(row), values)).rowcount > 0


def _remove(numbers: Sequence[int], connection: sa.Connection) -> None:
    connection.execute(sa.delete(_ROWS).where(_ROWS.c.id.in_(numbers)))


def _row_of(best: BestFile, component: str) -> dict[str, Any]:
    result = msgspec.json.encode(best).decode()
    # A result that comes back from another store has lost the places of its files.
    same = msgspec.json.encode(_without_places(best)).decode()
    return {
        "digest": hashlib.sha256(f"{component}\n{same}".encode()).hexdigest(),
        "format": FORMAT,
        "sequence": best.sequence,
        "dtype": best.dtype,
        "shape": "x".join(map(str, best.sizes.values())),
        "device": best.conditions.machine,
        "problem": best.problem_key,
        "component": component,
        "time_ns": best.time_ns,
        "taken": best.conditions.taken,
        "result": result,
    }


def _without_places(best: BestFile) -> BestFile:
    """Returns a result without names of files: the user's programs, and the library beside it."""
    stored = msgspec.structs.replace(best.stored, files=())
    return msgspec.structs.replace(best, stored=stored, library=msgspec.UNSET)


def _exported(lines: Iterable[bytes], name: str) -> Iterator[_Exported]:
    for k, line in enumerate(lines, 1):
        try:
            found = msgspec.json.decode(line, type=_Exported)
        except msgspec.DecodeError as e:
            raise RecordError(f"line {k} of {name} is no exported result: {e}") from e
        if found.format > FORMAT or found.best.schema not in READ:
            raise RecordError(f"line {k} of {name}: {_NEWER}")
        yield found


def _are_numbers(version: object, time_ns: object) -> bool:
    return isinstance(version, int) and isinstance(time_ns, float) and math.isfinite(time_ns)


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split("x") if n)


def best_of_each(rows: Iterable[Row]) -> list[Row]:
    """Returns for each key the row that readers prefer."""
    return [group[0] for group in _grouped(r for r in rows if not r.error)]


def _grouped(rows: Iterable[Row]) -> list[list[Row]]:
    """Returns the rows by key; in each group rows of the newest problem come first, sorted by time.

    `rows` are ordered by number.
    """
    groups: dict[TunedKey, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.key, []).append(row)
    found = []
    for group in groups.values():
        newest = {row.problem: -row.number for row in group}
        found.append(sorted(group, key=lambda r: (newest[r.problem], r.time_ns, r.number)))
    return found


def _is_near(a: TunedKey, b: TunedKey) -> bool:
    """True if both devices are of one kind and both shapes have the same number of sizes."""
    return _kind(a.device) == _kind(b.device) and _distance(a.shape, b.shape) < math.inf


def _kind(device: str) -> str:
    """Returns the kind of a device: the name of its accelerator, if it has one."""
    return device.rpartition(" ")[2].partition("-")[0]


def _nearness(found: TunedKey, key: TunedKey) -> tuple[bool, float, int]:
    """Sort key of stored keys: same device first, then the distance of shapes, then the common start of device names."""
    common = sum(
        1 for _ in takewhile(lambda x: x[0] == x[1], zip(found.device, key.device, strict=False))
    )
    return found.device != key.device, _distance(key.shape, found.shape), -common


def _level(found: TunedKey, key: TunedKey, distance: float) -> Level:
    if found.device != key.device:
        return "elsewhere"
    return "exact" if distance == 0 else "nearest"


def _distance(a: Sequence[int], b: Sequence[int]) -> float:
    if len(a) != len(b):
        return math.inf
    if a == b:
        return 0.0
    if not all(n > 0 for n in (*a, *b)):
        return math.inf
    return max(abs(math.log2(m / n)) for m, n in zip(a, b, strict=True))
