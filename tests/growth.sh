#!/bin/bash
# How often a program that fills its heap at full speed is killed at a hard limit of its budget plus 2 %, beside busy loops.
# Usage: tests/growth.sh SECONDS BUSY PLEAT...; as root, with a memory cgroup of version 1. Each round runs every program
# once under each of the given binaries, so that what else the machine does meets all alike. 77: skipped.
set -u
SECONDS_MAX=$1 BUSY=$2
shift 2
TOP=/sys/fs/cgroup/memory
HERE=$(dirname "$0")
[ "$(id -u)" = 0 ] && [ -w $TOP/memory.limit_in_bytes ] || { echo "SKIP: no memory cgroup of version 1 to write to"; exit 77; }
DIR=$(mktemp -d /var/tmp/pleat-growth-XXXXXX)
LOOPS=()
trap 'kill "${LOOPS[@]}" 2>/dev/null; rm -rf "$DIR"' EXIT
cc -O2 -o "$DIR/grow" "$HERE/programs/grow.c" || exit 2
for _ in $(seq "$BUSY"); do
    (while :; do :; done) &
    LOOPS+=($!)
done
declare -A RUNS KILLED OTHER

# MEBIBYTES of the budget, the program's own, binary
one() {
    local budget=$1 size=$2 pleat=$3 group=$TOP/pleat-growth-$$ name="$3 at $1M of $2M" status kills
    mkdir "$group" && echo $((budget * 1048576 * 102 / 100)) >"$group/memory.limit_in_bytes" || exit 2
    echo 0 >"$group/memory.swappiness"
    bash -c 'echo $$ >"$0" && exec "$@"' "$group/cgroup.procs" \
        timeout 60 "$pleat" run -q --memory "${budget}M" --swap-dir "$DIR" -- "$DIR/grow" "$size" >"$DIR/out" 2>>"$DIR/said"
    status=$?
    kills=$(awk '/^oom_kill /{print $2}' "$group/memory.oom_control")
    RUNS[$name]=$((${RUNS[$name]:-0} + 1))
    if [ "$kills" != 0 ]; then
        KILLED[$name]=$((${KILLED[$name]:-0} + 1))
    elif [ $status != 0 ] || ! grep -q '^0 of' "$DIR/out"; then
        OTHER[$name]=$((${OTHER[$name]:-0} + 1))
    fi
    for _ in 1 2 3 4 5 6 7 8 9; do rmdir "$group" 2>/dev/null && break; sleep 0.1; done
}

while [ $SECONDS -lt "$SECONDS_MAX" ]; do
    for pleat; do
        one 25 45 "$pleat"
        one 60 100 "$pleat"
        one 105 180 "$pleat"
        one 417 500 "$pleat"
    done
done
for name in "${!RUNS[@]}"; do
    echo "$BUSY busy: $name: ${KILLED[$name]:-0} of ${RUNS[$name]} killed, ${OTHER[$name]:-0} failed otherwise"
done | sort
