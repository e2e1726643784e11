#!/bin/bash
# pleat on kernels and machines that it was not made on: each row below is a guest that QEMU boots, with pleat and its tests on an
# ext4 disk. What came of each check is a line, as it comes; a row that cannot be had is skipped by name. No root is needed, but
# the network of apt, once (tests/kernels/fetch). Prints the table of docs/kernels.md at the end.
#     tests/kernels.sh DIR_OF_BUILD [ROW...]        default: all
#     tests/kernels.sh DIR_OF_BUILD --short         one row, meant for CI
# For every row, instead of what the table has: CHECKS (refused, doctor, limit, torture, shared, fork, more, death, programs, mount, attach,
# yama, kills, calls; with commas), CALLS (testers of tests/programs/calls, with commas), KILLS (cases of kills, as
# 60-grow-100,24-fill-40-1) and RUNS (of each), LIMIT_S (the seconds a guest may take), ACCEL (tcg,thread=multi), APPEND (more for the
# kernel's command line). KERNELS is where kernels are kept (default: kernels in DIR_OF_BUILD).
# The status is 1 if a check failed; 77: something is not installed, or nothing could be had.
set -u
BUILD=$(cd "$1" && pwd) || exit 2
shift
HERE=$(cd "$(dirname "$0")" && pwd)
KERNELS=${KERNELS:-$BUILD/kernels}
ALL=doctor,limit,torture,fork,death,programs,mount

# The CPU models: Nehalem has no AVX, Haswell AVX2, and so has max, which is all that QEMU can emulate. AVX-512 it cannot: `host` is
# this machine's CPU, which takes /dev/kvm. Debian's kernels have no memory groups of cgroup v1 (`trixie-v1`); one built for that
# has (`v1`). A guest may take so many minutes.
#        row            kernel     cgroup CPUs CPU     memory huge pages minutes checks
MATRIX="
         bookworm       bookworm   v2     2    max     1G     always     5       refused
         trixie         trixie     v2     2    max     2G     always     40      $ALL,limit,limit,more,shared,attach,yama
         trixie-nehalem trixie     v2     2    Nehalem 512M   madvise    25      $ALL
         trixie-1cpu    trixie     v2     1    Haswell 512M   always     30      $ALL
         trixie-4cpu    trixie     v2     4    Haswell 2G     never      30      $ALL
         trixie-v1      trixie     v1     2    max     1G     always     25      $ALL
         v1             trixie-v1  v1     2    max     1G     always     40      $ALL,shared,attach,yama
         v1-nehalem     trixie-v1  v1     1    Nehalem 512M   madvise    25      $ALL
         forky          forky      v2     2    Haswell 1G     always     40      $ALL,attach,yama
         forky-nehalem  forky      v2     4    Nehalem 512M   always     30      $ALL
         sid            sid        v2     2    max     2G     madvise    40      $ALL,shared,attach,yama
         sid-avx512     sid        v2     2    host    2G     always     25      $ALL
         own            own        v2     2    max     2G     always     25      $ALL
         trixie-kills   trixie     v2     2    max     2G     always     90      kills
         trixie-calls   trixie     v2     2    max     1G     always     60      calls
         sid-calls      sid        v2     2    max     1G     always     60      calls
"
SHORT="  short          trixie     v2     2    Nehalem 512M   always     6       $ALL"

missing() { echo "SKIP kernels: not installed: $1 (apt-get install qemu-system-x86 busybox-static cpio e2fsprogs)"; exit 77; }
[ -x "$BUILD/pleat" ] && [ -f "$BUILD/libpleat_agent.so" ] && [ -x "$BUILD/pleat-helper" ] || { echo "$BUILD: no pleat here; make it first" >&2; exit 2; }
export PATH=$PATH:/usr/sbin:/sbin
for tool in qemu-system-x86_64 busybox apt-get dpkg-deb cpio gzip xz cc mkfs.ext4 setpriv; do
    command -v $tool >/dev/null || missing $tool
done
! ldd "$(command -v busybox)" >/dev/null 2>&1 || missing "a static busybox"

DIR=$(mktemp -d /var/tmp/pleat-kernels-XXXXXX)
trap 'rm -rf "$DIR"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$KERNELS"

# with_libraries PROGRAM...: into the disk's /bin, and what each is linked with.
with_libraries() {
    cp -L --remove-destination "$@" "$disk/bin/"
    ldd "$@" | sed -n 's/.* => \(\/[^ ]*\) (.*/\1/p' | sort -u | while read -r library; do cp -L "$library" "$disk/lib/x86_64-linux-gnu/"; done
}

# program NAME COMMAND...: a real program, and what it prints here, without pleat.
program() {
    name=$1; shift
    path=$(command -v "$1") && "$@" >"$DIR/printed" && md5sum <"$DIR/printed" >"$disk/work/$name.md5" && with_libraries "$path"
}

# The disk: programs, what they work on, and room for swap.
make_disk() {
    disk=$DIR/disk
    mkdir -p "$disk"/{bin,proc,sys,dev,run,tmp,var/tmp,work,lib64,lib/x86_64-linux-gnu,etc}
    echo "root:x:0:0::/:/bin/sh" >"$disk/etc/passwd"
    echo "users:x:100:" >"$disk/etc/group"
    cp "$HERE/kernels/guest" "$HERE/kernels/attach" "$disk/"
    busybox --install -s "$disk/bin" && cp --remove-destination "$(command -v busybox)" "$disk/bin/busybox"
    for link in "$disk"/bin/*; do [ ! -L "$link" ] || ln -sf busybox "$link"; done
    local shared="$HERE/programs/torture/region.c $HERE/programs/torture/support.c"
    cc -O2 -pthread -o "$DIR/calls" "$HERE"/programs/calls/*.c $shared &&
        cc -O2 -pthread -o "$DIR/torture" "$HERE"/programs/torture/*.c &&
        cc -O2 -pthread -o "$DIR/waiters" "$HERE/programs/waiters.c" &&
        cc -O2 -pthread -o "$DIR/shared" "$HERE"/programs/shared/*.c $shared &&
        cc -O2 -o "$DIR/segment" "$HERE/programs/segment.c" &&
        cc -O2 -o "$DIR/grow" "$HERE/programs/grow.c" &&
        cc -O2 -o "$DIR/fill" "$HERE/programs/fill.c" || return 1
    cp -L /lib64/ld-linux-x86-64.so.2 "$disk/lib64/"
    with_libraries "$BUILD/pleat" "$DIR/calls" "$DIR/torture" "$DIR/waiters" "$DIR/shared" "$DIR/segment" "$DIR/grow" "$DIR/fill" "$(command -v setpriv)"
    cp "$BUILD/libpleat_agent.so" "$BUILD/pleat-helper" "$disk/bin/"
    if command -v python3 >/dev/null; then
        python3 "$HERE/programs/gen_lines.py" 12 >"$disk/work/lines"
        python3 "$HERE/programs/sqlite_mem.py" 30000 >"$disk/work/script.sql"
        LC_ALL=C program sort sort --parallel=2 -S 200M "$disk/work/lines"
        program sqlite3 sqlite3 :memory: <"$disk/work/script.sql"
    fi
    cp "$HERE/programs/hash.pl" "$disk/work/"
    program perl perl "$disk/work/hash.pl"
    truncate -s 1G "$DIR/disk.img" && mkfs.ext4 -q -F -d "$disk" "$DIR/disk.img"
}

# make_initrd MODULES: loads the modules, and goes on with the disk.
make_initrd() {
    local root=$DIR/root
    rm -rf "$root"; mkdir -p "$root"/{bin,dev,disk}
    cp "$(command -v busybox)" "$root/bin/"
    cp -r "$1" "$root/modules"
    cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
for module in /modules/*.ko; do /bin/busybox insmod $module 2>/dev/null; done
for try in 1 2 3 4 5 6 7 8 9 10; do [ -b /dev/vda ] && break; /bin/busybox sleep 1; done
/bin/busybox mount -t ext4 /dev/vda /disk || /bin/busybox poweroff -f
exec /bin/busybox switch_root /disk /guest
INIT
    chmod 755 "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$DIR/initrd"
}

# boot ROW KERNEL CGROUP CPUS CPU MEMORY HUGE MINUTES CHECKS: what it prints, in lines that begin with `=` for each check.
boot() {
    local accel=${ACCEL:-tcg,thread=multi}
    [ "$5" != host ] || accel=kvm
    local words="console=ttyS0 quiet loglevel=3 panic=-1 CGROUP=$3 HUGE=$7 CHECKS=${CHECKS:-$9} ${CALLS:+CALLS=$CALLS} ${RUNS:+RUNS=$RUNS} ${KILLS:+KILLS=$KILLS}"
    timeout "${LIMIT_S:-$(($8 * 60))}" qemu-system-x86_64 -accel "$accel" -cpu "$5" -smp "$4" -m "$6" -kernel "$KERNELS/$2/vmlinuz" -initrd "$DIR/initrd" \
        -append "$words ${APPEND:-}" -drive "file=$DIR/disk.img,format=raw,if=virtio,snapshot=on" \
        -display none -serial stdio -monitor none -no-reboot -nic none </dev/null 2>&1 | sed -u 's|\r||g'
}

# Adds what a row printed to the table, and to what is summed up.
sum_up() {
    local log=$KERNELS/$1.log seconds=$2 seen right skipped wrong noted
    count() { grep -c "^= $1" "$log"; }
    right=$(count ok) skipped=$(count SKIP) wrong=$(count FAIL) noted=$(count note)
    seen=$(sed -n 's/^    \(Linux .*\)/\1/p' "$log" | head -1)
    if ! grep -q '^= done' "$log"; then
        wrong=$((wrong + 1))
        echo "FAIL $1 did not come to its end in $seconds s; its last lines:"; tail -5 "$log" | sed 's/^/    /'
    fi
    passed_all=$((passed_all + right)) failed_all=$((failed_all + wrong)) skipped_all=$((skipped_all + skipped))
    table+="| $1 | ${seen:-does not boot} | $right | $skipped | $noted | $wrong | $seconds |"$'\n'
}

# run_row ROW KERNEL ...
run_row() {
    local why begun=$SECONDS
    if [ "$5" = host ] && ! { [ -w /dev/kvm ] && grep -qw avx512f /proc/cpuinfo; }; then
        why="needs /dev/kvm and a CPU with AVX-512, which QEMU cannot emulate"
    else
        why=$("$HERE/kernels/fetch" "$2" "$KERNELS/$2" 2>&1) || why=${why:-no kernel of $2}
    fi
    if [ -n "$why" ]; then
        echo "SKIP kernels-$1: $why"
        skipped_all=$((skipped_all + 1))
        table+="| $1 | skipped: $why | | | | | |"$'\n'
        return
    fi
    make_initrd "$KERNELS/$2/modules"
    # QEMU 7.2 sometimes trips over a kernel that patches its own text while it boots (`Oops: int3`). Such a guest has not come to
    # pleat: it is booted again.
    for try in 1 2 3; do
        begun=$SECONDS
        boot "$@" | tee "$KERNELS/$1.log" | sed -un "/^= done/d; s/^= \(....\) /\1 $1 /p; s/^    /     /p"
        ! grep -q '^    Linux ' "$KERNELS/$1.log" && grep -q 'Kernel panic' "$KERNELS/$1.log" || break
        echo "     $1: the kernel panicked while it booted, before pleat; try $try of 3"
    done
    sum_up "$1" $((SECONDS - begun))
}

passed_all=0 failed_all=0 skipped_all=0 table=
rows=$MATRIX
if [ "${1:-}" = --short ]; then rows=$SHORT; shift; fi
make_disk || exit 1
while read -r row rest <&3; do
    [ -n "$row" ] || continue
    [ $# = 0 ] || [[ " $* " = *" $row "* ]] || continue
    run_row "$row" $rest
done 3<<<"$rows"

echo
echo "| row | machine | right | skipped | noted | wrong | seconds |"
echo "|---|---|---|---|---|---|---|"
echo "$table"
echo "kernels: $passed_all passed, $failed_all failed, $skipped_all skipped"
[ $failed_all = 0 ] || exit 1
[ $passed_all -gt 0 ] || exit 77
