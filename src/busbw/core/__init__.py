"""Types and tables that all other packages share. Imports none of them."""
