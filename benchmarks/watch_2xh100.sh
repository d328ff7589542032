#!/bin/sh
# What `busbw watch` and `busbw run --watch` show of two GPUs with NVLink while an all_reduce runs. Takes less than 60 s.
#   OUT=folder PYTHONPATH=src sh benchmarks/watch_2xh100.sh
set -eu
export NCCL_NVLS_ENABLE=0
: "${OUT:?the folder for the output}"
python=${PYTHON:-python3}
nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.max,pcie.link.width.max --format=csv >"$OUT/gpus.csv" || true
$python -m busbw watch --interval 500ms --seconds 25 >"$OUT/watch.txt" 2>&1 &
table=$!
$python -m busbw watch --interval 200ms --seconds 25 --format json >"$OUT/watch.jsonl" 2>"$OUT/watch.err" &
lines=$!
sleep 2
$python -m busbw run all_reduce --watch -b 1M -e 1G -f 4 --max-time 0.5 --json "$OUT/run.json" --force >"$OUT/run.txt" 2>&1
wait "$table" "$lines"
$python -m busbw show "$OUT/run.json" >"$OUT/show.txt"
code=0
$python benchmarks/watch_2xh100.py "$OUT/watch.jsonl" "$OUT/run.json" >"$OUT/summary.txt" || code=$?
cat "$OUT/summary.txt"
exit "$code"
