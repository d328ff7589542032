"""Statistics of samples: intervals, tests, when enough are taken."""
