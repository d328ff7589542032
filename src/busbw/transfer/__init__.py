"""What benchmarks of transfers printed: NIXL's nixlbench and UCX's ucx_perftest."""
