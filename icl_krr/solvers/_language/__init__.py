"""The language of solvers: plain operators on vectors and scalars, recorded as a program."""
