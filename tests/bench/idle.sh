#!/usr/bin/env bash
# What pleat costs a program that never comes near its budget: interleaved pairs of runs without
# and with pleat, and the median of their ratios. The mark is at most 1.01.
#
#     tests/bench/idle.sh [-n PAIRS] [-m BUDGET] [-b PLEAT] [-- PROGRAM ARGS...]
#
# Without a program it compiles tests/programs/torture and runs `torture burn 800`: a few seconds
# of work that needs little memory. Give a program that allocates (a compiler, an interpreter) to
# see start-up and first touches too. The order within a pair alternates, so that a machine that
# grows slower or faster favours neither.
set -eu

here=$(cd "$(dirname "$0")/../.." && pwd)
pairs=11 budget=2G pleat=$here/target/release/pleat
while getopts n:m:b: option; do
    case $option in
    n) pairs=$OPTARG ;;
    m) budget=$OPTARG ;;
    b) pleat=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ "${1-}" = -- ] && shift

if [ ! -x "$pleat" ]; then
    echo "no pleat at $pleat: cargo build --release, or name it with -b" >&2
    exit 2
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ $# -eq 0 ]; then
    cc -O2 -pthread -o "$scratch/torture" "$here"/tests/programs/torture/*.c
    set -- "$scratch/torture" burn 800
fi

# Wall time of a command in microseconds; what it prints goes away, its failure ends us.
wall_us() {
    local start=${EPOCHREALTIME/[.,]/}
    "$@" >/dev/null </dev/null
    echo $((${EPOCHREALTIME/[.,]/} - start))
}
without() { wall_us "$@"; }
with() { wall_us "$pleat" run -q --memory "$budget" -- "$@"; }

echo "machine: $(nproc) CPUs, Linux $(uname -r), $("$pleat" --version 2>/dev/null | head -1)"
echo "program: $*"
without "$@" >/dev/null # warm the caches
for pair in $(seq "$pairs"); do
    if [ $((pair % 2)) -eq 0 ]; then
        a=$(without "$@") b=$(with "$@")
    else
        b=$(with "$@") a=$(without "$@")
    fi
    awk -v a="$a" -v b="$b" -v n="$pair" \
        'BEGIN { printf "pair %d: %.3f s without, %.3f s with, ratio %.4f\n", n, a/1e6, b/1e6, b/a }'
    awk -v a="$a" -v b="$b" 'BEGIN { printf "%.6f\n", b/a }' >>"$scratch/ratios"
done
sort -n "$scratch/ratios" | awk '{ r[NR] = $1 }
    END { m = NR % 2 ? r[(NR + 1) / 2] : (r[NR / 2] + r[NR / 2 + 1]) / 2
          printf "median ratio %.4f (%.4f to %.4f)\n", m, r[1], r[NR] }'
