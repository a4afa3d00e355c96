"""Name what a model runs: candidates, their distances, what is ruled out, and a verdict."""
