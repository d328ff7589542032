"""The step of a training, from a pattern and from what the recorder in its ranks wrote."""
