"""`busbw check trend`: how the error counts of links grew between snapshots."""
