"""Joins search to the machine: explore, resume, replay, load. The only place where both are known."""
