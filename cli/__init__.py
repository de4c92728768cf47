"""The `explore` command."""

import sys

__all__ = ["main"]


def main() -> None:
    """The `explore` command; ends the process."""
    try:
        from .commands import main as run  # in which time Ctrl-C is no error either
    except KeyboardInterrupt:
        sys.stderr.write("explore: stopped\n")
        sys.exit(130)
    run()
