#!/usr/bin/env bash
# Runs a real program three ways and prints a table: as it is, at half its memory with pleat, and
# (as root, where a memory cgroup can be made) at half its memory without pleat.
#
#   demo/demo.sh target/release/pleat
set -euo pipefail

pleat=$(realpath "${1:?usage: demo/demo.sh PLEAT}")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/var/tmp}/pleat-demo.XXXXXX")
cgroup=
clean_up() {
    rm -rf "$work"
    [ -z "$cgroup" ] || rmdir "$cgroup" 2>/dev/null || true
}
trap clean_up EXIT

# ---- the program: a Python index, else sort ----

if python3 -c '' 2>/dev/null; then
    name="python3 demo/index.py: build a full-text index in memory, then query it"
    program=("$(python3 -c 'import sys; print(sys.executable)')" "$here/index.py" 500000 100000)
else
    name="sort: 120 MB of text, in memory"
    echo "writing the text to be sorted ..."
    awk 'BEGIN { srand(5); for (i = 0; i < 3000000; i++)
                 printf "%09d some line of text number %d\n", rand() * 1e9, i }' >"$work/text"
    program=(env LC_ALL=C sort --buffer-size=1G --parallel=1 "$work/text")
fi

# ---- measuring ----

# run OUT COMMAND...: runs it, sets seconds, status and peak_kb (the largest resident size seen).
run() {
    local out=$1 started=$EPOCHREALTIME pid seen
    shift
    "$@" >"$out" 2>"$work/stderr" &
    pid=$!
    peak_kb=0
    while kill -0 "$pid" 2>/dev/null; do
        seen=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status" 2>/dev/null || true)
        peak_kb=$((${seen:-0} > peak_kb ? ${seen:-0} : peak_kb))
        sleep 0.05
    done
    status=0
    wait "$pid" 2>/dev/null || status=$?
    seconds=$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $started }")
}

row() { printf '%-34s %9s %14s   %s\n' "$@"; }
mb() { echo "$(($1 / 1024)) MB"; }

# within COMMAND...: runs the command inside the demo's cgroup.
within() {
    (echo "$BASHPID" >"$cgroup/cgroup.procs" && exec "$@")
}

# A cgroup with a hard limit of $1 bytes and no swap; fails where none can be made.
make_cgroup() {
    local root limit swap
    if [ -d /sys/fs/cgroup/memory ]; then
        root=/sys/fs/cgroup/memory limit=memory.limit_in_bytes swap=memory.memsw.limit_in_bytes
    else
        root=/sys/fs/cgroup limit=memory.max swap=memory.swap.max
        grep -qw memory "$root/cgroup.subtree_control" 2>/dev/null || return 1
    fi
    mkdir "$root/pleat-demo.$$" 2>/dev/null || return 1
    cgroup=$root/pleat-demo.$$
    echo "$1" >"$cgroup/$limit" || return 1
    if [ -e "$cgroup/$swap" ]; then
        case $swap in *memsw*) echo "$1" ;; *) echo 0 ;; esac >"$cgroup/$swap" || return 1
    fi
}

# ---- the runs ----

echo "$name"
run "$work/natural" "${program[@]}"
[ "$status" = 0 ] || { cat "$work/stderr" >&2; exit 1; }
natural_seconds=$seconds natural_kb=$peak_kb
budget_mb=$((natural_kb / 2048))
budget_bytes=$((budget_mb << 20))
hard_bytes=$((budget_bytes + budget_bytes / 50))

echo
row "" "time" "peak memory" ""
row "without pleat" "$natural_seconds s" "$(mb "$natural_kb")" ""

limited=()
if [ "$(id -u)" = 0 ] && make_cgroup "$hard_bytes" 2>/dev/null; then
    limited=(within)
    run "$work/killed" within "${program[@]}"
    case $status in
        137) row "without pleat, limit $((hard_bytes >> 20)) MB" "-" "-" "killed: out of memory" ;;
        *) row "without pleat, limit $((hard_bytes >> 20)) MB" "$seconds s" "$(mb "$peak_kb")" "exit status $status" ;;
    esac
else
    row "without pleat, limit $((hard_bytes >> 20)) MB" "-" "-" "skipped: needs root and a memory cgroup"
fi

run "$work/folded" ${limited[@]+"${limited[@]}"} \
    "$pleat" run --memory "${budget_mb}M" --stats "$work/stats.json" -- "${program[@]}"
[ "$status" = 0 ] || { cat "$work/stderr" >&2; echo "pleat: exit status $status" >&2; exit 1; }
peak_bytes=$(sed -n 's/.*"peak_bytes": *\([0-9]*\).*/\1/p' "$work/stats.json" | head -n 1)
verdict="same output"
cmp -s "$work/natural" "$work/folded" || verdict="DIFFERENT OUTPUT"
row "with pleat, --memory ${budget_mb}M" "$seconds s" "$(mb $((peak_bytes / 1024)))" "$verdict"
[ "$verdict" = "same output" ]
