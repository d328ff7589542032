"""Elastic jobs on one host: workers join and leave a running training. Imports no torch."""
