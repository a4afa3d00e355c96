"""The claims of the field, one file each: an experiment, and the verdict that follows from it."""
