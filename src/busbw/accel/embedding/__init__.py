"""Tables of embedding rows that grow, by 64-bit ids."""
