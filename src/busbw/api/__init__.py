"""What a command does between its arguments and its output, for the commands and for programs."""
