"""Parts of `busbw plan`: a training of busbw's, the user's own, a pattern, and losses."""
