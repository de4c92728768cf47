"""`explore store`: lists, exports, imports and prunes results in the tuned store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..options import Talk, put_json, talks
from ..speaking import say

if TYPE_CHECKING:
    from ...runtime.records.store import Row, TunedStore

_MOST_BYTES = 1 << 30  # of a file that is imported


_MOST_BYTES = 1 << 30  # of a file that is imported


@click.group("store")
def command() -> None:
    """The tuned store: the best implementations of all searches, on this machine or of a team (KERNELSCAPE_STORE)."""


@command.command("list")
@click.option(
    "--all", "shows_all", is_flag=True, help="Also rows that are not the best of their kind."
)
@talks
def list_rows(talk: Talk, shows_all: bool) -> None:
    """List results: sequence, sizes, device and time."""
    from ...runtime.records.store import best_of_each

    with _opened() as store:
        rows = store.rows()
        for row in rows if shows_all else best_of_each(rows):
            _put(talk, row)
        if not talk.is_json:
            say(f"{store.name}  {len(rows)} rows")


@command.command("show")
@click.argument("number", type=click.IntRange(1, 2**63 - 1))
@talks
def show_row(talk: Talk, number: int) -> None:
    """Print the result of row NUMBER as a best.json, which `explore replay` takes."""
    import msgspec

    with _opened() as store:
        text = msgspec.json.encode(store.read(number)).decode()
    if talk.is_json:
        put_json({"event": "stored_result", "row": number, "best": text})
    else:
        say(text)


@command.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@talks
def export_rows(talk: Talk, file: Path) -> None:
    """Write all results to FILE, a line each, for `explore store import` elsewhere. It has no names of files."""
    from ...runtime.files import write_named

    with _opened() as store:
        lines = list(store.exported())
    write_named(file, b"".join(line + b"\n" for line in lines))
    _told(talk, str(file), exported=len(lines))


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@talks
def import_rows(talk: Talk, file: Path) -> None:
    """Add the results of FILE: all of them, or none where a line cannot be read."""
    from ...runtime.files import read_regular
    from ...runtime.records.record import RecordError

    try:
        lines = read_regular(file, _MOST_BYTES, follow=True).splitlines()
    except (OSError, ValueError) as e:
        raise RecordError(f"{file} cannot be read: {getattr(e, 'strerror', None) or e}") from e
    with _opened() as store:
        n_new, n_known = store.add(lines, str(file))
    _told(talk, str(file), new=n_new, known=n_known)


@command.command("merge")
@click.argument("address")
@talks
def merge_store(talk: Talk, address: str) -> None:
    """Add the results of another store: a file, or the URL of a database."""
    from ...runtime.records.record import RecordError
    from ...runtime.records.store import TunedStore

    if "://" not in address and not Path(address).is_file():
        raise RecordError(f"there is no store {address}")
    with TunedStore(address) as other, _opened() as store:
        n_new, n_known = store.add(other.exported(), other.name)
        name = other.name
    _told(talk, name, new=n_new, known=n_known)


@command.command("prune")
@talks
def prune_rows(talk: Talk) -> None:
    """Remove rows that cannot be read, and those that are not the best of their kind."""
    with _opened() as store:
        n_removed, name = store.prune(), store.name
    _told(talk, name, removed=n_removed)


def _opened() -> TunedStore:
    from ...runtime.records.store import TunedStore

    return TunedStore()


def _put(talk: Talk, row: Row) -> None:
    from ...search.bound.explain import time_text

    shape = "x".join(map(str, row.key.shape))
    if talk.is_json:
        put_json(
            {
                "event": "stored",
                "row": row.number,
                "sequence": row.key.family,
                "dtype": row.key.dtype,
                "shape": list(row.key.shape),
                "device": row.key.device,
                "time_ns": row.time_ns,
                "taken": row.taken,
                "error": row.error,
            }
        )
        return
    words = row.error or time_text(row.time_ns)
    say(
        f"{row.number:>6} {row.key.family:<28} {row.key.dtype} {shape:<16} {words:>10}  {row.key.device}  {row.taken}"
    )


def _told(talk: Talk, name: str, **counts: int) -> None:
    if talk.is_json:
        put_json({"event": "store", "name": name, **counts})
    else:
        words = ", ".join(f"{n} {key}" for key, n in counts.items())
        say(f"{name}  {words}")
