"""Change a model and see what follows: parts removed, patched, rounded, or swapped for others."""
