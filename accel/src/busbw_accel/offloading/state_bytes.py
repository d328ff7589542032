"""The memory of a training whose states are divided between GPU and host: what busbw_accel.offload
needs and busbw plan predicts.
"""

STATE_BYTES = 12  # of a parameter: fp32 weight and two fp32 moments of AdamW
SLOT_BYTES = 2  # of a parameter, in bf16: its gradient to the host, then its new weight to the GPU
HOST_BYTES = STATE_BYTES + SLOT_BYTES  # of a parameter whose states are on the host
STAGING_BUFFERS = 3  # pieces of new weights: one is filled while others are copied
# Bytes that the update of an element moves in host memory: bf16 gradient in, fp32 weight and
# moments in and out, bf16 weight out.
UPDATE_BYTES = 28
# Elements updated together. Pieces of 1 << 24 are so many that updates fall behind backward
# (benchmarks/offload_1xh100_202611).
PIECE = 1 << 26
HOST_RESERVE = 1 << 31  # bytes of host memory left to the rest of the process and the system
