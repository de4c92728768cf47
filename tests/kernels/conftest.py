"""Lets tests of the kernels import `strategies` from tests/, which is no package."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
