"""The kernel log of this boot: a check for each rule of core."""
