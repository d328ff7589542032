"""A running job: NCCL's RAS, Flight Recorder dumps and the hosts' counters read together."""
