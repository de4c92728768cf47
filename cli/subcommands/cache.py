"""`explore cache`: lists and clears caches on this machine."""

from __future__ import annotations

import click

from ..options import Talk, put_json, talks
from ..speaking import say


@click.command("cache")
@click.option("--clear", metavar="NAME", help="Remove that one, or `all` that can be made again.")
@talks
def command(talk: Talk, clear: str | None) -> None:
    """Show what is kept on this machine, where, and how large it is; what can be made again can be cleared."""
    from ...explorer.caches import clear_kept, kept_places

    if clear is not None:
        try:
            freed = clear_kept(clear)
        except ValueError as e:
            raise click.UsageError(str(e)) from e
        if talk.is_json:
            put_json({"event": "cleared", "names": freed.names, "freed_bytes": freed.n_bytes})
        else:
            say(f"cleared {', '.join(freed.names)}: {freed.n_bytes / 1e6:.1f} MB")
        return
    for place in kept_places():
        if talk.is_json:
            put_json(
                {
                    "event": "kept",
                    "name": place.name,
                    "path": str(place.path),
                    "files": len(place.files),
                    "bytes": place.n_bytes,
                    "can_be_cleared": place.can_be_cleared,
                    "what": place.what,
                }
            )
        else:
            size = f"{len(place.files)} files, {place.n_bytes / 1e6:.1f} MB"
            say(f"{place.name:<13} {size:<22} {place.path}")
            if talk.verbosity > 1:
                say(f"{'':<13} {place.what}")
