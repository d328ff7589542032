"""The table of reference curves as users meet it: their own runs, lists and comparisons."""
