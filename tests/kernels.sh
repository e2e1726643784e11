#!/bin/sh
# pleat on kernels that it was not made on: boots Debian's kernels in QEMU and runs the testers of tests/programs/calls, and
# some of tests/programs/torture, in each. Prints the table of docs/kernels.md. No root is needed, but the network of apt.
#     tests/kernels.sh DIR_OF_BUILD [SUITE...]      default: bookworm trixie sid
# CPUS (2), MEMORY (1G), CPU (max) and ACCEL (tcg,thread=multi; kvm is faster) are the machine's, APPEND more for the kernel's
# command line (proc_mem.force_override=never, from 6.12 on: text cannot be written to through /proc/self/mem). TESTS are the
# testers (default: all), PRESS those of the torture program (default: read threads fork); GROW (5) is how often a program grows
# beyond its budget inside a hard limit of that and 2 %, in cgroup v2, with a group of its own and without. KERNELS is where kernels
# are kept (default: kernels in DIR_OF_BUILD); LIMIT_S (1800) how long a machine may take. 77: something is not installed. The
# status is 1 if a tester failed, or a program with a group of its own was killed.
set -u
BUILD=$(cd "$1" && pwd) || exit 2
shift
[ -x "$BUILD/pleat" ] && [ -f "$BUILD/libpleat_agent.so" ] || { echo "$BUILD: no pleat here; make it first" >&2; exit 2; }
[ $# -gt 0 ] || set -- bookworm trixie sid
HERE=$(cd "$(dirname "$0")" && pwd)
KERNELS=${KERNELS:-$BUILD/kernels}
for tool in qemu-system-x86_64 busybox apt-get dpkg-deb cpio gzip cc; do
    command -v $tool >/dev/null || { echo "SKIP: not installed: $tool (apt-get install qemu-system-x86 busybox-static cpio)"; exit 77; }
done
if ldd "$(command -v busybox)" >/dev/null 2>&1; then
    echo "SKIP: busybox is not static (apt-get install busybox-static)"
    exit 77
fi
DIR=$(mktemp -d /var/tmp/pleat-kernels-XXXXXX)
trap 'rm -rf "$DIR"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$KERNELS"

# kernel SUITE: fetches the suite's kernel unless it is there, and prints where it is.
kernel() {
    at=$KERNELS/$1
    if [ ! -f "$at/vmlinuz" ]; then
        mkdir -p "$at/lists/partial" "$at/cache/archives/partial"
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $1 main" >"$at/sources.list"
        apt="-o Dir::Etc::sourcelist=$at/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$at/lists -o Dir::Cache=$at/cache"
        apt="$apt -o APT::Sandbox::User="
        apt-get $apt -q update >&2 || return 1
        image=$(apt-cache $apt depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -1)
        # Newer suites have the kernel itself in a package of its own.
        binary=$(apt-cache $apt depends "$image" | sed -n 's/.*Depends: \(linux-binary-.*\)/\1/p' | head -1)
        (cd "$at" && apt-get $apt -q download "${binary:-$image}" >&2) || return 1
        dpkg-deb --fsys-tarfile "$at"/linux-*.deb | tar -x -C "$at" --wildcards './boot/vmlinuz*' './usr/lib/modules/*/vmlinuz' 2>/dev/null
        found=$(find "$at" -name 'vmlinuz*' -type f | head -1)
        [ -n "$found" ] || return 1
        mv "$found" "$at/vmlinuz"
        rm -rf "$at"/*.deb "$at/cache" "$at/lists"
    fi
    echo "$at/vmlinuz"
}

# What the machine is made of: one file system in memory.
root=$DIR/root
mkdir -p "$root/bin" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/var/tmp" "$root/lib64" "$root/lib/x86_64-linux-gnu" "$root/etc"
cp "$(command -v busybox)" "$root/bin/"
cp "$BUILD/pleat" "$BUILD/libpleat_agent.so" "$root/bin/"
shared="$HERE/programs/torture/region.c $HERE/programs/torture/support.c"
cc -O2 -pthread -o "$root/bin/calls" "$HERE"/programs/calls/*.c $shared &&
    cc -O2 -pthread -o "$root/bin/torture" "$HERE"/programs/torture/*.c &&
    cc -O2 -o "$root/bin/grow" "$HERE/programs/grow.c" || exit 1
for program in pleat calls torture grow; do
    ldd "$root/bin/$program" | sed -n 's/.* \(\/[^ ]*\) (.*/\1/p'
done | sort -u | while read -r library; do
    cp -L "$library" "$root/lib/x86_64-linux-gnu/"
done
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
echo "root:x:0:0::/:/bin/sh" >"$root/etc/passwd"
# Each in one line, whatever is between the names.
TESTS=$(echo ${TESTS:-$("$root/bin/calls" list)})
PRESS=$(echo ${PRESS-read threads fork})
cat >"$root/init" <<END
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp; mount -t tmpfs tmp /var/tmp; mount -t cgroup2 cgroup /sys/fs/cgroup
ip link set lo up 2>/dev/null
echo "KERNEL \$(uname -r)"
pleat doctor | sed 's/^/DOCTOR /'
one() {
    timeout 120 pleat run --memory "\$1" --swap-dir /var/tmp -- "\$2" "\$3" \$4 >/tmp/out 2>&1; status=\$?
    # What the tester itself says counts.
    said=\$(grep -m1 -oE '^(ok|SKIP|FAIL) ' /tmp/out)
    case "\$status \$said" in "0 ok "|"0 SKIP ") echo "\$said\$3" ;; *) echo "FAIL \$3 (status \$status)" ;; esac | sed 's/^/RESULT /'
    [ "\$said" = "ok " ] || sed "s/^/SAID \$3: /" /tmp/out
}
# grow WAY: its group has no other process than pleat.
grow() {
    group=/sys/fs/cgroup/grow
    mkdir \$group; echo 64172851 >\$group/memory.max
    timeout 120 sh -c "echo \\\$\\\$ >\$group/cgroup.procs; exec pleat run --memory 60M --swap-dir /var/tmp --cgroup \$1 -- /bin/grow 100" >/tmp/out 2>&1; status=\$?
    kills=\$(sed -n 's/^oom_kill //p' \$group/memory.events)
    if [ \$status = 0 ] && [ "\$kills" = 0 ]; then echo "GROW \$1 right"
    else echo "GROW \$1 status \$status, kills \$kills"; sed "s/^/SAID grow: /" /tmp/out; fi
    rmdir \$group/* \$group 2>/dev/null
}
if pleat doctor | grep -q '^MISSING'; then
    # Nothing can be managed: one line says so, and nothing runs.
    pleat run --memory 40M --no-swap -- echo ran >/tmp/out 2>&1; status=\$?
    if [ \$status = 125 ] && [ "\$(wc -l </tmp/out)" = 1 ] && grep -q 'cannot manage memory here' /tmp/out; then echo "RESULT ok refused"
    else echo "RESULT FAIL refused (status \$status)"; sed "s/^/SAID refused: /" /tmp/out; fi
    echo DONE; poweroff -f
fi
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
# The heap asks before it grows: the C library was met where it calls the kernel.
pleat run --memory 60M --swap-dir /var/tmp --stats /tmp/stats -- /bin/grow 100 >/tmp/out 2>&1
if grep -qE '"announced_mappings": *[1-9]' /tmp/stats; then echo "RESULT ok announced"
else echo "RESULT FAIL announced"; sed "s/^/SAID announced: /" /tmp/out; fi
for test in $(seq "${GROW:-5}" | tr '\n' ' '); do grow auto; grow never; done
for test in $TESTS; do one 40M /bin/calls \$test; done
for test in $PRESS; do one 44M /bin/torture \$test 64; done
echo DONE
poweroff -f
END
chmod 755 "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$DIR/initrd" || exit 1

failed=0
echo "| suite | kernel | CPUs | \`pleat doctor\` | killed, own cgroup | killed, none | right | skipped | wrong |"
echo "|---|---|---|---|---|---|---|---|---|"
for suite; do
    image=$(kernel "$suite") || { echo "| $suite | cannot be had | | | | | | | |"; continue; }
    log=$KERNELS/$suite.log
    timeout "${LIMIT_S:-1800}" qemu-system-x86_64 -accel "${ACCEL:-tcg,thread=multi}" -cpu "${CPU:-max}" -smp "${CPUS:-2}" -m "${MEMORY:-1G}" \
        -kernel "$image" -initrd "$DIR/initrd" -append "console=ttyS0 quiet loglevel=3 panic=-1 ${APPEND:-}" \
        -display none -serial stdio -monitor none -no-reboot -nic none </dev/null 2>/dev/null >"$log.raw"
    tr -d '\r' <"$log.raw" >"$log"; rm -f "$log.raw"
    count() { grep -c "^RESULT $1 " "$log"; }
    # killed WAY: of how many runs of grow how many did not end well.
    killed() { echo "$(grep "^GROW $1 " "$log" | grep -vc right) of $(grep -c "^GROW $1 " "$log")"; }
    wrong=$(count FAIL)
    grep -q '^DONE' "$log" || wrong="$wrong, and it did not come to the end"
    verdict=$(sed -n 's/^DOCTOR MISSING *[a-z]* *\([^:]*\).*/\1/p' "$log" | head -1)
    echo "| $suite | $(sed -n 's/^KERNEL //p' "$log") | ${CPUS:-2} | ${verdict:-all is there} | $(killed auto) | $(killed never) | $(count ok) | $(count SKIP) | $wrong |"
    [ "$wrong" = 0 ] || { failed=1; grep -E '^(RESULT (FAIL|SKIP)|SAID)' "$log" >&2; }
    # Nobody is killed who waits in a group of its own.
    grep -q '^GROW auto status' "$log" && failed=1
done
exit $failed
