"""The `explore` command."""

import sys

__all__ = ["main"]


def main() -> None:
    """Runs the `explore` command, and ends the process with its exit code."""
    try:
        from .commands import main as run  # in which time Ctrl-C is no error either
    except KeyboardInterrupt:
        sys.stderr.write("explore: stopped\n")
        sys.exit(130)
    run()
