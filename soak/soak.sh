#!/usr/bin/env bash
# Runs programs that check their own memory under pleat until the time is over, at four times their budget:
#
#   soak/soak.sh [MINUTES] [PLEAT]        30 minutes and target/release/pleat unless told
#
# Three lanes side by side, each in a memory cgroup of its budget plus 2 %, with a swap file of at most six
# times the budget:
#
#   stress      stress-ng --vm --verify, one method a round. Of move-inv's memory nothing compresses, flip,
#               ror and rand-set leave half of it, lfsr32 a third; the others leave a tenth and less but
#               overwrite single bits and bytes, galpat-0 and swap at random, the primes in strides.
#   shuffle     torture shuffle: pages at random checked and written anew, half of them incompressible, so
#               that the swap file fills with holes in no order and its garbage has to be collected.
#   memtester   a few of its patterns a round, on memory that is not locked.
#
# A line for each round of a lane, a verdict at the end. Fails when a program does, or finds wrong memory,
# or is killed at its limit, or when a swap file or pleat itself grows beyond its bound. Exit status 77 and a
# line SKIP where it cannot run at all.
set -euo pipefail

minutes=${1:-30}
here=$(cd "$(dirname "$0")/.." && pwd)
pleat=${2:-$here/target/release/pleat}
case $minutes in
    '' | *[!0-9]* | 0) echo "usage: soak/soak.sh [MINUTES] [PLEAT]" >&2; exit 2 ;;
esac

# Megabytes; what each lane works on is four times as much, its swap file at most six times.
declare -A budget_mb=([stress]=64 [shuffle]=64 [memtester]=16)
round_seconds=$((minutes < 10 ? 15 : 60))
methods=(move-inv galpat-0 rand-set flip swap ror all lfsr32 prime-1 walk-1a modulo-x prime-gray-0 rand-sum)
# Bits of memtester's tests, always with the first, which makes both halves of memory equal: the next six
# rely on that, and fail on any memory without it. Those that take dozens of passes are left out: at a quarter
# of the memory one of them takes longer than the whole soak.
masks=(0x3 0x8001 0x5 0x10001 0x9 0x11 0x21 0x41)
# A round that takes so much longer than it should hangs.
hang_seconds=600

# ---- what it needs ----

PATH=$PATH:/usr/sbin:/sbin # memtester

skip() { echo "SKIP soak: $*"; exit 77; }
need() {
    command -v "$1" >/dev/null || {
        echo "missing: $1    get it: sudo apt-get install $2"
        missing=yes
    }
}
missing=
need stress-ng stress-ng
need memtester memtester
need timeout coreutils
[ "$(id -u)" != 0 ] || need setpriv util-linux
[ -z "$missing" ] || skip "programs are missing"
[ -x "$pleat" ] || { echo "no pleat at $pleat: run make first" >&2; exit 2; }
pleat=$(realpath "$pleat")
"$pleat" doctor >/dev/null || { "$pleat" doctor || true; skip "pleat cannot work here"; }

# ---- the end, before anything has begun ----

if [ -d /sys/fs/cgroup/memory ]; then
    groups=/sys/fs/cgroup/memory limit=memory.limit_in_bytes swap=memory.memsw.limit_in_bytes
    kills=memory.oom_control
else
    groups=/sys/fs/cgroup limit=memory.max swap=memory.swap.max kills=memory.events
fi

group_of() { echo "$groups/pleat-soak.$$.$1"; }

# Ends what a lane runs now: at once all that is in its cgroup, else pleat, with which its job ends.
end_lane() {
    local pid group
    group=$(group_of "$1")
    if [ -d "$group" ]; then
        while read -r pid; do kill -KILL "$pid" 2>/dev/null || true; done <"$group/cgroup.procs"
        return 0 # without a number, in a trap, it is the status of what was interrupted
    fi
    pid=$(cat "$work/$1.pid" 2>/dev/null) || return 0
    kill "$pid" 2>/dev/null || true
    for _ in {1..120}; do
        kill -0 "$pid" 2>/dev/null || return 0
        sleep 0.1
    done
}

clean_up() {
    trap '' INT TERM
    set +e
    local lane pid group
    for pid in "${lane_pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for lane in "${lanes[@]}"; do
        group=$(group_of "$lane")
        for _ in {1..50}; do
            end_lane "$lane"
            [ -d "$group" ] || break
            rmdir "$group" 2>/dev/null || sleep 0.1
        done
    done
    [ -z "$work" ] || rm -rf "$work"
}
work=
lanes=()
lane_pids=()
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- what it runs ----

work=$(mktemp -d "${TMPDIR:-/var/tmp}/pleat-soak.XXXXXX")
lanes=(stress memtester)
if command -v cc >/dev/null; then
    cc -O2 -pthread -o "$work/torture" "$here"/tests/programs/torture/*.c
    lanes+=(shuffle)
else
    echo "NOTE: no lane shuffle: no C compiler (get it: sudo apt-get install gcc libc6-dev)"
fi

# ---- limits ----

# limit_lane LANE: makes its cgroup; fails where that cannot be.
limit_lane() {
    local group bytes
    group=$(group_of "$1")
    bytes=$((budget_mb[$1] * 1024 * 1024 / 100 * 102))
    mkdir "$group" && echo "$bytes" >"$group/$limit" || return 1
    [ -e "$group/$swap" ] || return 0
    case $swap in *memsw*) echo "$bytes" ;; *) echo 0 ;; esac >"$group/$swap"
}

# ---- a round ----

began=$EPOCHSECONDS
deadline=$((began + minutes * 60))

# Sets what the lane runs in its next round, for at most so many seconds, and what it prints when all is well.
plan_stress() {
    local method=${methods[($1 - 1) % ${#methods[@]}]} keep=()
    # Every other time round the same memory is written again, else mapped anew.
    [ $((($1 - 1) / ${#methods[@]} % 2)) = 1 ] || keep=(--vm-keep)
    what="stress-ng $method"
    command=(stress-ng --temp-path "$work" --vm 2 --vm-bytes $((4 * budget_mb[stress]))M
        --vm-method "$method" ${keep[@]+"${keep[@]}"} --verify --timeout "${2}s")
    success="successful run completed"
}

plan_shuffle() {
    what="torture shuffle"
    command=("$work/torture" shuffle $((4 * budget_mb[shuffle])) "$2")
    success="ok shuffle"
}

# It locks its memory where it may, and locked memory stays where it is: it may not.
plan_memtester() {
    local mask=${masks[($1 - 1) % ${#masks[@]}]} unlocked
    what="memtester $mask"
    unlocked='ulimit -l 0; exec "$@"'
    command=(env MEMTESTER_TEST_MASK="$mask" sh -c "$unlocked" sh)
    [ "$(id -u)" != 0 ] || command+=(setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock)
    command+=(memtester $((4 * budget_mb[memtester]))M 1)
    success="Done."
}

# run LANE SECONDS: runs `command` under pleat inside the lane's limits; its exit status.
run() {
    local memory=${budget_mb[$1]} group
    group=$(group_of "$1")
    (
        [ ! -d "$group" ] || echo "$BASHPID" >"$group/cgroup.procs"
        exec timeout -k 10 $(($2 + hang_seconds)) "$pleat" run --memory "${memory}M" \
            --swap-dir "$work" --swap-max $((6 * memory))M --stats "$work/$1.json" -- "${command[@]}"
    ) </dev/null >"$work/$1.out" 2>&1 &
    echo $! >"$work/$1.pid"
    local status=0
    wait $! || status=$?
    rm "$work/$1.pid"
    return $status
}

# figure LANE NAME: a figure of the last round; nothing if there is no such figure.
figure() { sed -n 's/.*"'"$2"'": *\([0-9][0-9]*\).*/\1/p' "$work/$1.json" | head -n 1; }

# check LANE STATUS: why the round is a failure; nothing if it is not.
check() {
    local lane=$1 status=$2 bound=$((6 * budget_mb[$1] * 1024 * 1024)) high killed=0 group own
    # A table entry for each page, and what pleat needs for any job.
    local own_bound=$(((8 + 4 * budget_mb[$1] / 16) * 1024 * 1024))
    group=$(group_of "$lane")
    [ ! -d "$group" ] || killed=$(sed -n 's/^oom_kill //p' "$group/$kills")
    if [ "$killed" != 0 ]; then
        echo "killed at the limit of its memory cgroup"
    elif [ "$status" = 124 ] || [ "$status" = 137 ]; then
        echo "did not end (status $status)"
    elif [ "$status" != 0 ]; then
        echo "exit status $status"
    elif grep -Eq 'FAIL|fail:' "$work/$lane.out"; then
        echo "found wrong memory"
    elif ! grep -Fq "$success" "$work/$lane.out"; then
        echo "did not say '$success'"
    else
        high=$(figure "$lane" swap_high_water_bytes)
        own=$(figure "$lane" own_peak_bytes)
        if [ "${high:-$((bound + 1))}" -gt "$bound" ]; then
            echo "swap file of ${high:-?} bytes, $bound allowed"
        elif [ "${own:-$((own_bound + 1))}" -gt "$own_bound" ]; then
            echo "pleat itself had ${own:-?} bytes, $own_bound allowed"
        fi
    fi
}

# report LANE ROUND WHAT: one line.
report() {
    local lane=$1 pages high collected moved gc= own
    own=$(figure "$lane" own_peak_bytes)
    pages=$(figure "$lane" written_pages)
    high=$(figure "$lane" swap_high_water_bytes)
    collected=$(figure "$lane" collected_clusters)
    moved=$(figure "$lane" moved_pages)
    [ -z "$collected" ] || gc="  collected $collected units, moved ${moved:-0} pages"
    printf '%5d s  %-9s %3d  %-22s %8d pages written, file %4d of %4d MB, pleat itself %2d MB%s\n' \
        $((EPOCHSECONDS - began)) "$lane" "$2" "$3" "$pages" $((high >> 20)) $((6 * budget_mb[$lane])) \
        $((own >> 20)) "$gc"
    echo "$lane $pages $((high >> 20)) ${collected:-0} ${moved:-0}" >>"$work/rounds"
}

# lane NAME: rounds until the time is over; fails with the first that does.
lane() {
    local round=0 left status why
    while left=$((deadline - EPOCHSECONDS)) && { [ "$left" -gt 5 ] || [ $round = 0 ]; }; do
        round=$((round + 1))
        "plan_$1" "$round" $((left < round_seconds ? left : round_seconds))
        status=0
        run "$1" "$round_seconds" || status=$?
        why=$(check "$1" "$status")
        if [ -n "$why" ]; then
            echo "FAIL $what: $why; the end of what it said:"
            tr -d '\b' <"$work/$1.out" | tail -n 15 | cut -c 1-160 | sed 's/^/    /'
            return 1
        fi
        report "$1" "$round" "$what"
    done
}

# ---- all of it ----

for name in "${lanes[@]}"; do
    limit_lane "$name" 2>/dev/null && continue
    rmdir "$(group_of "$name")" 2>/dev/null || true
    echo "NOTE: no hard limit for lane $name: no memory cgroup can be made here"
done
for name in "${lanes[@]}"; do
    lane "$name" &
    lane_pids+=($!)
done
for _ in "${lanes[@]}"; do
    wait -n || { echo "soak: FAILED after $((EPOCHSECONDS - began)) s"; exit 1; }
done
awk '{ rounds++; pages += $2; if ($3 > high) high = $3; units += $4; moved += $5 }
     END { printf "soak: ok: %d rounds, %d pages written, swap files of at most %d MB, ", rounds, pages, high
           printf "%d units collected, %d pages moved\n", units, moved; exit pages == 0 }' "$work/rounds" ||
    { echo "soak: FAILED: nothing went to the swap file"; exit 1; }
