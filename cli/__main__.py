"""`python -m kernelscape.cli`: the `explore` command, for installations whose scripts are not on the path."""

from . import main

main()
