#!/bin/sh
# Slurm runs it as root on each node of a job: Prolog=/etc/slurm/busbw-prolog.sh in slurm.conf, PrologFlags=Alloc.
# Each step may take @{limit_s} s; PrologEpilogTimeout must be longer.
# busbw is at the same path on every node. Slurm sets no PATH. The hosts of a busbw.toml are not this node.
export PATH="${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}" BUSBW_CONFIG=/dev/null

run() {
    out=$(timeout -k 10 @{limit_s} "$@" 2>&1)
    code=$?
    case $code in
    @{bad}) why=$(echo "$out" | grep -m 1 -E '^(FAIL|UNKNOWN|WARN|error)') ;;
    124|137) why="$1 $2 did not end within @{limit_s} s" ;;
    0) return 0 ;;
    *) logger -t busbw-prolog -- "exit code $code: this node could not be judged, and is kept: $out"; return 0 ;;
    esac
    echo "print busbw: $why"
    logger -t busbw-prolog -- "$why: $out"
    exit 1
}

run @{check}
run @{least}
