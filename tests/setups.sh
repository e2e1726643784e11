#!/bin/sh
# Which set-ups pleat works in: prints the table of docs/setups.md. As root: tests/setups.sh DIR_OF_BUILD (target/release).
# What cannot be tried says so. `vm.unprivileged_userfaultfd` is put back.
set -u
IN_CONTAINER=
BUILD=$(cd "$1" && pwd)
HERE=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" = 0 ] || { echo "SKIP: only root can try them all"; exit 77; }
DIR=$(mktemp -d /var/tmp/pleat-setups-XXXXXX)
SYSCTL=/proc/sys/vm/unprivileged_userfaultfd
BEFORE=$(cat $SYSCTL)
MODE=$(stat -c %a /dev/userfaultfd 2>/dev/null)
trap 'echo "$BEFORE" >$SYSCTL; [ -z "$MODE" ] || chmod "$MODE" /dev/userfaultfd; command -v podman >/dev/null && podman rmi -f pleat-setups >/dev/null 2>&1; rm -rf "$DIR"' EXIT
chmod 755 "$DIR"
mkdir -p "$DIR/bin" "$DIR/lib/pleat" "$DIR/swap"
chmod 777 "$DIR/swap"
cp "$BUILD/pleat" "$DIR/bin"; cp "$BUILD/libpleat_agent.so" "$BUILD/pleat-helper" "$DIR/lib/pleat"
cc -O2 -o "$DIR/bin/shut_in" "$HERE/programs/shut_in.c" || exit 1
NOBODY="setpriv --reuid 65534 --regid 65534 --inh-caps=-all"
USERS=$(getent group users | cut -d: -f3)

# One cell: a job in 44 MiB that needs 80.
cell() {
    out=$("$@" 2>&1)
    case $out in
        "ok 0") echo yes ;;
        *"fork refused"*) echo "no: fork refused" ;;
        *"cannot manage memory here"*) echo "$out" | sed -n 's/.*cannot manage memory here: \(.*\); `pleat doctor.*/no: \1/p' | head -n 1 ;;
        *"Error: "*) [ -n "$IN_CONTAINER" ] && echo "not run here: $(echo "$out" | grep -m 1 "Error: " | cut -c 1-90)" ||
            echo "no: $(echo "$out" | tail -n 1 | cut -c 1-90)" ;;
        *"runs unmanaged"*) echo "unmanaged" ;;
        *) echo "no: $(echo "$out" | tail -n 1 | cut -c 1-90)" ;;
    esac
}
# row NAME PREFIX...: without forks, with forks, giving up root where that can be.
row() {
    name=$1; shift
    P="$DIR/bin/pleat run --memory 44M --swap-dir $DIR/swap -- $DIR/bin/shut_in"
    echo "| $name | $(cell timeout 60 "$@" $P single 80) | $(cell timeout 60 "$@" $P none 80) |"
}
echo "| set-up | a program | one that forks |"
echo "|---|---|---|"
row "root" env
row "root, no \`/dev\`" unshare -m sh -c 'mount -t tmpfs none /dev && exec "$@"' sh
row "root without CAP_SYS_PTRACE" setpriv --bounding-set=-sys_ptrace
row "an ordinary user" $NOBODY --clear-groups
echo 1 >$SYSCTL
row "an ordinary user, \`vm.unprivileged_userfaultfd=1\`" $NOBODY --clear-groups
echo "$BEFORE" >$SYSCTL
"$DIR/bin/pleat" setup --group users >/dev/null
row "an ordinary user after \`pleat setup\`" $NOBODY --groups "$USERS"
row "the same, not in the group" $NOBODY --clear-groups
row "\`unshare -Ur\` by root" unshare -Ur
row "\`unshare -Ur\` by that user" $NOBODY --groups "$USERS" unshare -Ur
P="$DIR/bin/pleat run --memory 44M --swap-dir $DIR/swap --"
for how in "su nobody -s /bin/sh -c" "runuser -u nobody -- sh -c" "$NOBODY --clear-groups sh -c"; do
    tool=${how%% *}
    echo "| root, then \`$tool\` | $(cell timeout 60 $P $how "$DIR/bin/shut_in single 80") | $(cell timeout 60 $P $how "$DIR/bin/shut_in none 80") |"
done
for how in uid euid; do
    echo "| root, then \`set$how()\` in the program | $(cell timeout 60 $P "$DIR/bin/shut_in" $how 80) | the same |"
done
# Where the groups of version 2 are not alone, crun starts a container if it sees none, and only without limits of its own.
cat >"$DIR/ungrouped" <<'END'
#!/bin/sh
umount -R /sys/fs/cgroup; mount -t tmpfs none /sys/fs/cgroup || exit 1
exec podman --runtime crun run --cgroups=disabled --ulimit nofile=1000:1000 --ulimit nproc=1000:1000 "$@"
END
chmod 755 "$DIR/ungrouped"
START="podman run"
[ -e /sys/fs/cgroup/cgroup.controllers ] || ! command -v crun >/dev/null || START="unshare -m $DIR/ungrouped"
container() {
    name=$1; shift
    IN_CONTAINER=1
    row "$name" $START --rm --network none -v "$DIR:$DIR" "$@" pleat-setups
}
# As a user who has other user ids to give (/etc/subuid): ROOTLESS=NAME.
cat >"$DIR/rootless" <<'END'
#!/bin/sh
if [ ! -e /sys/fs/cgroup/cgroup.controllers ]; then
    umount -R /sys/fs/cgroup; mount -t tmpfs none /sys/fs/cgroup || exit 1
fi
export HOME=$ROOTLESS_HOME XDG_RUNTIME_DIR=$ROOTLESS_HOME/run
cd /
exec setpriv --reuid "$ROOTLESS" --regid "$ROOTLESS" --init-groups --inh-caps=-all podman --runtime crun --log-level error "$@"
END
chmod 755 "$DIR/rootless"
rootless_rows() {
    [ -n "${ROOTLESS:-}" ] && command -v crun newuidmap >/dev/null || {
        echo "| podman, rootless | not run here: needs crun, newuidmap and ROOTLESS=USER | |"; return; }
    mkdir -p "$DIR/home/run"; chown -R "$ROOTLESS" "$DIR/home"; chmod 700 "$DIR/home/run"
    export ROOTLESS ROOTLESS_HOME=$DIR/home
    (trap - EXIT; tar -C "$DIR/root" -c . >"$DIR/image.tar") && chmod 644 "$DIR/image.tar"
    unshare -m "$DIR/rootless" import "$DIR/image.tar" pleat-setups >/dev/null 2>"$DIR/import" || {
        echo "| podman, rootless | not run here: $(tail -n 1 "$DIR/import") | |"; return; }
    START="unshare -m $DIR/rootless run --cgroups=disabled"
    container "podman, rootless"
    container "podman, rootless, \`--cap-add SYS_PTRACE\`" --cap-add SYS_PTRACE
    echo 1 >$SYSCTL
    container "podman, rootless, \`vm.unprivileged_userfaultfd=1\`, \`seccomp=unconfined\`" --security-opt seccomp=unconfined
    echo "$BEFORE" >$SYSCTL
    chmod 666 /dev/userfaultfd
    container "podman, rootless, \`--device /dev/userfaultfd\`, which that user may open" --device /dev/userfaultfd
    chmod "$MODE" /dev/userfaultfd
    unshare -m "$DIR/rootless" system reset -f >/dev/null 2>&1
}
if command -v podman >/dev/null; then
    # The libraries of this machine are image enough.
    mkdir -p "$DIR/root/bin" "$DIR/root/tmp" "$DIR/root/etc"
    for library in $(ldd "$DIR/bin/pleat" "$DIR/bin/shut_in" /bin/sh | grep -o '/[^ ]*\.so[^ ]*' | sort -u); do
        mkdir -p "$DIR/root$(dirname "$library")"; cp -L "$library" "$DIR/root$library"
    done
    cp /bin/sh "$DIR/root/bin/sh"
    if tar -C "$DIR/root" -c . | podman import - pleat-setups >/dev/null 2>"$DIR/import"; then
        container "podman, root" --privileged=false
        container "podman, root, \`--cap-add SYS_PTRACE\`" --cap-add SYS_PTRACE
        container "podman, root, \`--device /dev/userfaultfd\`" --device /dev/userfaultfd
        container "podman, root, both" --device /dev/userfaultfd --cap-add SYS_PTRACE
        container "podman, root, \`seccomp=unconfined\`, the capability" --security-opt seccomp=unconfined --cap-add SYS_PTRACE
        container "podman, \`--uidmap\`, both" --uidmap 0:100000:65536 --device /dev/userfaultfd --cap-add SYS_PTRACE
    else
        echo "| podman | not run here: $(tail -n 1 "$DIR/import") | |"
    fi
    rootless_rows
else
    echo "| podman | not run here: not installed | |"
fi
echo "| Docker | not run here | not run here |"
