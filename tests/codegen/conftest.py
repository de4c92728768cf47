"""Lets tests of generated code import `strategies` from tests/ and `templates` from here."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE)]
