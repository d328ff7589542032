"""What starts ranks."""
