"""What several rooms share: checks of arguments, guarded arithmetic, files, and the status."""
