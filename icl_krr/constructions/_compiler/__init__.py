"""The compiler of solvers: a program becomes operations of a machine, pass by pass."""
