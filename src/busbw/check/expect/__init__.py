"""What a node should have, by an expectations file: each module compares one part of it."""
