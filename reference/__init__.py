"""What the indexer is: float64 stages in numpy and JAX, the conventions they follow, and their error bounds."""
