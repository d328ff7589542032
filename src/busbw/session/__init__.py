"""One run from the caller's side: start the ranks or be one of them, follow what they report, and return the result."""
