"""Which ranks of a job were late, from how long each was in its calls."""
