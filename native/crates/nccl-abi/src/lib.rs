//! NCCL's plugin structures, one module a version: layouts only, no logic.
