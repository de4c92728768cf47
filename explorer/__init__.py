"""Joins search to the machine: explore, resume, replay, load. The only place where both are known."""

from .entry import explore
from .family import load_tuned
from .results import load, replay

__all__ = ["explore", "load", "load_tuned", "replay"]
