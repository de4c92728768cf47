"""One file a family of choices: values, sites, predicates, constraints. `space/build.py` finds them."""
