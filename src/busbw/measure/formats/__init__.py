"""How a sweep is written and read: tables, CSV, nccl-tests' text and JSON."""
