"""What training makes of an algorithm that was written down as weights."""
