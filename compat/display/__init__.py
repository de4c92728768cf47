"""Windows without a screen: what a program draws becomes pictures, which are kept, written, or not even made."""
