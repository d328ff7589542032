"""Memory of a training whose states are divided between GPU and host: what busbw.accel.offload
needs and busbw plan predicts.
"""

STATE_BYTES = 12  # of a parameter: fp32 weight and two fp32 moments of AdamW
SLOT_BYTES = 2  # its gradient on the way down, and the new weight on the way up, in bf16
HOST_BYTES = STATE_BYTES + SLOT_BYTES  # of a parameter whose states are on the host
STAGING_BUFFERS = 3  # pieces of new weights: one is filled while others are copied
UPDATE_BYTES = (
    # that the update of an element moves in host memory: bf16 gradient in, fp32 weight and moments
    # in and out, bf16 weight out
    28
)
PIECE = (
    1 << 26
    # elements updated together; of 1 << 24 there are so many that updates fall behind backward
    # (benchmarks/offload_1xh100_202611)
)
# bytes of host memory that stay free for the rest of the process and the system
HOST_RESERVE = 1 << 31
