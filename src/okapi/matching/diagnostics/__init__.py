"""What a matching did: balance, precision, effect, weights, attrition, and the grid search over calipers."""
