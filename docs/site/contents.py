"""The guides and explanations in the order in which a reader meets them: the truth for the site's
navigation, docs/README.md and docs/llms.txt.
"""

HOW_TO = {
    "Measure": [
        "replace-nccl-tests",
        "pytorch-benchmark",
        "use-from-python",
        "tune-nccl",
        "what-nccl-ran",
        "compare-runs",
        "share-a-report",
        "shell-completion",
    ],
    "Several hosts": [
        "several-hosts",
        "settings",
        "deploy-to-many-nodes",
        "slurm",
        "kubernetes",
        "lab",
        "fix-a-launch",
        "when-it-stops",
    ],
    "Clusters": [
        "check-a-cluster",
        "what-a-node-should-have",
        "test-links",
        "watch-a-network",
        "monitor-with-prometheus",
        "how-fast-should-my-cluster-be",
        "compare-with-published-runs",
    ],
    "Inference": [
        "what-does-my-server-send",
        "which-all-reduce",
        "overlap",
        "moe-dispatch",
        "kv-cache",
    ],
    "Training": [
        "slow-job",
        "what-does-my-training-send",
        "train-over-slow-networks",
        "fsdp2",
        "local-steps",
        "nccl-over-ethernet",
        "larger-models",
        "large-embeddings",
        "embedding-traffic",
        "from-horovod",
        "add-a-codec",
    ],
}
EXPLANATION = [
    "how-to-read-busbw",
    "verification",
    "the-model",
    "machine-counters",
    "net-plugin",
    "compression",
    "offloading",
]
