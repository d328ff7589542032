"""Quality of service of RoCE."""
