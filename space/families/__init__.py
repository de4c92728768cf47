"""Families of choices, one file each: values, sites, predicates, constraints. `space/build.py` finds them."""
