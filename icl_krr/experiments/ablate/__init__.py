"""What every part of a model is needed for, beside what its algorithm lets expect."""
