//! The plugin NCCL loads: exported tables, version adapters and nothing else.
