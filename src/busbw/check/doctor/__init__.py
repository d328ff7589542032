"""The launch doctor: what a launch over several hosts needs, one stage after the other, up to the first that fails."""
