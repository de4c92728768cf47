"""Joins search to the machine: explore, resume, replay, load. The only place where both are known."""

from .entry import explore
from .saved import load, replay

__all__ = ["explore", "load", "replay"]
