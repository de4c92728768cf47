"""Commands of `explore`, each the object `command` of a module.

A module imports only what its options need, so that `--help` is quick.
"""
