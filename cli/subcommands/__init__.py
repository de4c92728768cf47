"""Commands of `explore`, each the `command` of a module. Loading a module loads what its options need: `--help` is quick."""
