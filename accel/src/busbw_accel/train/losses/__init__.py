"""`busbw plan --losses`: the user's own training with and without methods, compared by its loss."""
