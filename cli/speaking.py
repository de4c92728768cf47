"""Printing for all commands, with control characters escaped, since texts may come from other people's files."""

from __future__ import annotations

import click


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Prints one or several lines; characters that would control a terminal are printed as escapes.

    `err`: to stderr. `nl`: with a line break at the end.
    """
    click.echo(shown(text), err=err, nl=nl)


def shown(text: str) -> str:
    """Returns the text with escapes for control characters and characters that cannot be encoded.

    Line breaks and tabs are unchanged.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        x if x.isprintable() or x in "\n\t" else x.encode("unicode_escape").decode() for x in text
    )
