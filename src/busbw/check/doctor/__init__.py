"""The launch doctor: the stages of a launch over several hosts, up to the first that fails."""
