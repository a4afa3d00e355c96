"""Settings that are not in the files of their commands yet."""
