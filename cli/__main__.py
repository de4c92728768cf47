"""`python -m kernelscape.cli`: the `explore` command where its script is not on the path."""

from . import main

main()
