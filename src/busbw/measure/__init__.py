"""A measurement from start to result: plan, ranks, timing, verification, watchdog, record."""
