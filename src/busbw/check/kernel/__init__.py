"""Modules and settings of the kernel and operating system."""
