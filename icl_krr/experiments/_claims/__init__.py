"""Claims of the literature, one file each, with an experiment that decides the verdict."""
