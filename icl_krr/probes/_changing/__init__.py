"""Change a model and see what follows: parts removed, patched or rounded."""
