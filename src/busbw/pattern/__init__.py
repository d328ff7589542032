"""What an application sends: capture, readers of logs, traces and dumps, what several ranks saw
together, replay.
"""
