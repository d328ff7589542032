"""Commands that busbw-accel adds to `busbw`."""
