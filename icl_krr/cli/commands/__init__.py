"""One file a command, with `run(settings)`."""
