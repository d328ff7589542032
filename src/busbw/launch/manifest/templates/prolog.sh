#!/bin/sh
# Slurm runs it as root on each node @{when}
# Each step may take @{limit_s} s; PrologEpilogTimeout must be longer.
# busbw is at the same path on every node. Slurm sets no PATH. The hosts of a busbw.toml are not this node.
export PATH="${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin}" BUSBW_CONFIG=/dev/null

# The reason that `sinfo -R` shows: the check, then what it found. One that somebody else gave is kept.
drain() {
    [ -n "$SLURMD_NODENAME" ] && command -v scontrol > /dev/null || return
    timeout 20 scontrol --oneliner show node "$SLURMD_NODENAME" | grep -q -E ' State=[A-Z+]*DRAIN' && return
    reason=$(echo "$1" | sed -E 's/^[A-Za-z]+:? *(.*)  \[[A-Z0-9]+ (.*)\]$/\2: \1/')
    timeout 20 scontrol update "nodename=$SLURMD_NODENAME" state=drain "reason=busbw $reason"
}

run() {
    out=$(timeout -k 10 @{limit_s} "$@" 2>&1)
    code=$?
    why=$(echo "$out" | grep -m 1 -E '^(FAIL|UNKNOWN|WARN|error)')
    case $code in
    @{bad}) ;;
    124|137) why="$1 $2 did not end within @{limit_s} s" ;;
    0) return 0 ;;
    *) kept="exit code $code: this node could not be judged, and is kept"
       echo "note: $kept: ${why:-$out}" >&2
       logger -t @{tag} -- "$kept: $out"
       return 0 ;;
    esac
    echo "print busbw: $why"
    logger -t @{tag} -- "$why: $out"
    drain "$why"
    exit 1
}

run @{check}
[ $code -ne 2 ] || { echo "note: the checks now run without --expect" >&2; run @{without_file}; }
run @{least}
