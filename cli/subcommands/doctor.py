"""`explore doctor`: examines this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from ..exits import Exit
from ..options import Talk, put_json, settings_of, talks
from ..speaking import say


@click.command("doctor")
@click.option("--fleet", type=click.Path(path_type=Path), help="Also the fleet of this file.")
@talks
def command(talk: Talk, fleet: Path | None) -> None:
    """Show what this machine has, what is missing, and how to get it."""
    from ..doctor import examine

    settings = settings_of(talk)
    findings = examine(os.environ, settings.compiler, fleet)
    for f in findings:
        if talk.is_json:
            fields = {"topic": f.topic, "verdict": f.verdict, "text": f.text, "advice": f.advice}
            put_json({"event": "finding"} | fields)
        elif talk.verbosity or f.verdict != "ok":
            say(f"{f.verdict:<8} {f.topic:<12} {f.text}")
            if f.advice:
                say(f"{'':<21} {f.advice}")
    if any(f.verdict == "missing" for f in findings):
        sys.exit(Exit.ENVIRONMENT)
