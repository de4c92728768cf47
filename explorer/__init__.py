"""Joins search to runtime: explore, resume, replay, load. Only this folder imports both."""
