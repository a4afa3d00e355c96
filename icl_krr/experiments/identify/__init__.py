"""Which solver a trained model runs, and whether constructed ones are told apart."""
