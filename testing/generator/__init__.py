"""Random programs of the language as text: one grammar, whose weights (features.py) make each corpus."""
