"""Windows without a screen: drawings of a program become pictures, which are stored, written to files, or never rendered."""
