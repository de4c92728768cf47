"""Windows without a screen: a program's drawings become pictures, kept in memory or written to files."""
