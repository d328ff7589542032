"""What an application sent: readers of logs, traces and dumps, and the merging of what several ranks saw."""
