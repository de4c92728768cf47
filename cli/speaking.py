"""All that the command prints goes through here: names and texts may come from files that others wrote."""

from __future__ import annotations

import click


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """A line, or several, as people can read them: what would steer a terminal is shown as its escape."""
    click.echo(shown(text), err=err, nl=nl)


def shown(text: str) -> str:
    """The text with control characters, and what cannot be encoded, as escapes; ends of lines and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        x if x.isprintable() or x in "\n\t" else x.encode("unicode_escape").decode() for x in text
    )
