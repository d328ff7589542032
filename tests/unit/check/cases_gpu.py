"""Cases of the layer GPU and NVLink."""

GPU = {}
