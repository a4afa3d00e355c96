"""SolverBench: models of known algorithm and models that run no candidate, written and scored."""
