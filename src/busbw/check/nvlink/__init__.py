"""NVLink."""
