"""Printing for all commands: escapes control characters, since names and texts may come from files that others wrote."""

from __future__ import annotations

import click


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Prints a line, or several. Characters that would steer a terminal are shown as their escapes."""
    click.echo(shown(text), err=err, nl=nl)


def shown(text: str) -> str:
    """Returns the text with escapes for control characters, and for characters that cannot be encoded. Ends of lines and tabs
    stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        x if x.isprintable() or x in "\n\t" else x.encode("unicode_escape").decode() for x in text
    )
