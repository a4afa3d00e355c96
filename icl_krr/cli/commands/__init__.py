"""The commands: one file each, with a function `run(settings)`."""
