"""`explore calibrate`: measures the rates of this machine."""

from __future__ import annotations

import click

from ..options import Talk, put_json, settings_of, talks
from ..speaking import say


@click.command("calibrate")
@click.option("--target", help="cpu or cuda.")
@talks
def command(talk: Talk, target: str | None) -> None:
    """Measure the machine facts that the bound uses, and keep them for this machine."""
    from ..views import calibration_fields, calibration_lines, measurable

    settings = settings_of(talk, target=target)
    device = measurable(settings.target, settings.compiler)
    if talk.verbosity:
        say("measuring caches, memory, arithmetic and threads (about 10 s)", err=True)
    found = device.machine.calibrate()
    if talk.is_json:
        put_json(calibration_fields(found))
        return
    for line in calibration_lines(found):
        say(line)
