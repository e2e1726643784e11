#!/bin/sh
# How often the kernel kills a job inside a hard limit of its budget and 2 %: prints the table of docs/limits.md. As root:
#     tests/limits.sh DIR_OF_BUILD [RUNS] [CASE...]
# RUNS runs (10) of each case (all, or those whose names begin so) and each kind of neighbour. NEIGHBOURS (default "0 4 12")
# says how many busy threads there are beside it, WAYS (default "auto never user") whether the job has a memory cgroup of its
# own, has none, or is that of an ordinary user, who may open /dev/userfaultfd. What is not installed is left out.
set -u
BUILD=$(cd "$1" && pwd); RUNS=${2:-10}; shift; [ $# -gt 0 ] && shift
HERE=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" = 0 ] || { echo "SKIP: only root can set the limits"; exit 77; }
OWN=$(sed -n 's/^[0-9]*:memory:\(.*\)$/\1/p' /proc/self/cgroup)
TOP=/sys/fs/cgroup/memory$OWN
[ -f "$TOP/memory.limit_in_bytes" ] || TOP=/sys/fs/cgroup/memory
[ -f "$TOP/memory.limit_in_bytes" ] || { echo "SKIP: no memory cgroup (version 1) here"; exit 77; }
DIR=$(mktemp -d /var/tmp/pleat-limits-XXXXXX)
GROUP=$TOP/pleat-limits.$$
DEVICE=$(stat -c %a /dev/userfaultfd)
BUSY=
finish() {
    for pid in $BUSY; do kill "$pid" 2>/dev/null; done
    chmod "$DEVICE" /dev/userfaultfd
    # What of a job is still there when this is ended.
    for pid in $(cat "$GROUP/cgroup.procs" "$GROUP"/*/cgroup.procs 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
    [ -d "$GROUP" ] && { sleep 1; rmdir "$GROUP"/pleat-job-* "$GROUP" 2>/dev/null; }
    rm -rf "$DIR"
}
trap finish EXIT
trap 'exit 130' INT TERM
chmod 755 "$DIR"; mkdir -p "$DIR/swap"; chmod 777 "$DIR/swap"
cp "$BUILD/pleat" "$BUILD/libpleat_agent.so" "$DIR"
cc -O2 -o "$DIR/grow" "$HERE/programs/grow.c" && cc -O2 -o "$DIR/fill" "$HERE/programs/fill.c" || exit 1
cc -O2 -static -o "$DIR/static-fill" "$HERE/programs/fill.c" || exit 1
musl-gcc -O2 -static -o "$DIR/musl-fill" "$HERE/programs/fill.c" 2>/dev/null
cat >"$DIR/heap.rb" <<'EOF'
a = []; i = 0
while a.size < 400_000; a << ("x" * 200 + i.to_s); i += 1; end
puts a.map(&:size).sum
EOF
cat >"$DIR/heap.py" <<'EOF'
a = [("x" * 200) + str(i) for i in range(500_000)]
print(sum(map(len, a)))
EOF
cat >"$DIR/heap.lua" <<'EOF'
local a = {}
for i = 1, 600000 do a[i] = string.rep("x", 200) .. i end
local s = 0; for i = 1, #a do s = s + #a[i] end; print(s)
EOF
cat >"$DIR/heap.js" <<'EOF'
const a = []; for (let i = 0; i < 600000; i++) a.push(Buffer.alloc(200, i & 255));
console.log(a.reduce((s, b) => s + b.length, 0))
EOF
cat >"$DIR/Heap.java" <<'EOF'
public class Heap { public static void main(String[] v) { byte[][] a = new byte[700000][]; long s = 0;
    for (int i = 0; i < a.length; i++) { a[i] = new byte[200]; a[i][0] = (byte) i; }
    for (byte[] b : a) s += b.length; System.out.println(s); } }
EOF
command -v javac >/dev/null && javac -d "$DIR" "$DIR/Heap.java"
chmod -R a+rX "$DIR"

# run BUDGET_MIB WAY PROGRAM...: what became of it, in one letter: k killed by the kernel, e any other error, or nothing.
run() {
    budget=$1; way=$2; shift 2
    mkdir "$GROUP" || exit 1
    echo $((budget * 1048576 / 100 * 102)) >"$GROUP/memory.limit_in_bytes"
    flags="--memory ${budget}M --swap-dir $DIR/swap"
    user=
    case $way in
        never) flags="$flags --cgroup never" ;;
        user) user="setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all" ;;
    esac
    (echo 0 >"$GROUP/cgroup.procs"; exec timeout 120 $user "$DIR/pleat" run $flags -- "$@") >"$DIR/out" 2>"$DIR/err"
    status=$?
    kills=$(sed -n 's/^oom_kill //p' "$GROUP/memory.oom_control")
    if [ "$kills" != 0 ] || grep -q "the kernel killed" "$DIR/err"; then echo k
    elif [ $status != 0 ]; then echo "e"; cat "$DIR/err" >>"$DIR/errors"; fi
    sleep 0.05
    rmdir "$GROUP"
}
# row NAME BUDGET_MIB PROGRAM...
row() {
    name=$1; budget=$2; shift 2
    for way in $WAYS; do
        line="| $name | ${budget}M | $way |"
        for count in $NEIGHBOURS; do
            BUSY=
            while [ "$count" -gt 0 ]; do
                timeout 3600 sh -c 'while :; do :; done' & BUSY="$BUSY $!"
                count=$((count - 1))
            done
            all=; nth=0
            while [ $nth -lt "$RUNS" ]; do all="$all$(run "$budget" "$way" "$@")"; nth=$((nth + 1)); done
            for pid in $BUSY; do kill "$pid"; wait "$pid" 2>/dev/null; done
            BUSY=
            killed=$(printf %s "$all" | tr -cd k | wc -c); wrong=$(printf %s "$all" | tr -cd e | wc -c)
            line="$line $killed of $RUNS"
            [ "$wrong" = 0 ] || line="$line ($wrong failed)"
            line="$line |"
        done
        echo "$line"
    done
}
wanted() {
    [ -z "$CASES" ] && return 0
    for case in $CASES; do case $1 in "$case"*) return 0 ;; esac; done
    return 1
}
CASES=$*
NEIGHBOURS=${NEIGHBOURS-0 4 12}; WAYS=${WAYS:-auto never user}
echo "| program | budget | own cgroup |$(for count in $NEIGHBOURS; do echo " beside $count busy threads |"; done | tr -d '\n')"
echo "|---|---|---|$(for count in $NEIGHBOURS; do echo "---|"; done | tr -d '\n')"
case " $WAYS " in *" user "*) chmod 666 /dev/userfaultfd ;; esac
cd "$DIR" || exit 1
wanted grow && { row "grow 100" 60 ./grow 100; row "grow 180" 105 ./grow 180; row "grow 720" 417 ./grow 720; }
wanted fill && for budget in 24 32 40 60 100; do row "fill $((budget * 17 / 10))" $budget ./fill $((budget * 17 / 10)) 1; done
wanted static && for budget in 24 40 100; do row "static fill $((budget * 17 / 10))" $budget ./static-fill $((budget * 17 / 10)) 1; done
wanted static && row "static fill 30 beside fill 60" 40 sh -c './static-fill 30 1 & ./fill 60 1; wait'
wanted musl && [ -x musl-fill ] && row "musl fill 68" 40 ./musl-fill 68 1
wanted ruby && command -v ruby >/dev/null && row ruby 70 ruby "$DIR/heap.rb"
wanted python && command -v python3 >/dev/null && row python3 80 python3 "$DIR/heap.py"
wanted lua && command -v lua >/dev/null && row lua 90 lua "$DIR/heap.lua"
wanted node && command -v node >/dev/null && row node 120 node "$DIR/heap.js"
wanted java && command -v javac >/dev/null && row java 160 java -XX:+UseSerialGC -Xmx256m -cp "$DIR" Heap
[ -f "$DIR/errors" ] && { echo; echo "Other failures:"; sort "$DIR/errors" | uniq -c; }
exit 0
