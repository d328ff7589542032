"""A job that runs under `busbw capture`, watched from outside through its files."""
