"""What a collective should reach, and what a result says: bounds, predictions, findings."""
