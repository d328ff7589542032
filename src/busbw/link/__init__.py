"""Tests of links between hosts."""
