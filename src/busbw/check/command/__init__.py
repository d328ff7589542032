"""Rules of launchers' command lines: found without running them."""
