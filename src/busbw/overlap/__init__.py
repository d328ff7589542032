"""A collective and other work at the same time: how much each slows the other down."""
