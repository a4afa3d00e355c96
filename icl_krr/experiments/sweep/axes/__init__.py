"""The axes of a sweep: a file each, with the models of a grid line by line and value by value."""
