"""Network ports."""
