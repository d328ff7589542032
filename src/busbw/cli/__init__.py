"""Turns arguments into calls: a module for each command, several for a large one."""
