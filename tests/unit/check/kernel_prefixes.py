"""Prefixes of driver lines in the kernel log."""

MLX = "mlx5_core 0000:44:00.0: "
HW = "mce: [Hardware Error]: "
