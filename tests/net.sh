#!/bin/sh
# Puts faults back into the pager, one after the other (tests/net/*.patch), and has the simulation look for each: a row for
# each fault, with the steps and the histories that it took, and what was seen. Fails if one is not found.
#
#   tests/net.sh [PATCH...]
#
# STEPS: how long to look for each (100000000). CARGO: which cargo.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
steps=${STEPS:-100000000}
target=${CARGO_TARGET_DIR:-$root/target}/net
copy=$target/source
[ $# -gt 0 ] || set -- tests/net/*.patch

printf '| fault put back | steps | histories | what is seen |\n|---|---:|---:|---|\n'
missed=0
for patch; do
    rm -rf "$copy"
    mkdir -p "$copy"
    tar -c --exclude target Cargo.toml Cargo.lock crates | tar -x -C "$copy"
    # What the last patch has changed is older now than what was built of it.
    [ ! -f "$target/changed" ] || (cd "$copy" && xargs touch <"$target/changed")
    sed -n 's|^+++ b/||p' "$patch" >"$target/changed"
    patch -d "$copy" -p1 -s -F 0 <"$patch"
    # So that cargo builds what was changed, and nothing else anew.
    (cd "$copy" && CARGO_TARGET_DIR=$target "${CARGO:-cargo}" test -q -p pleat-pager --lib --no-run 2>"$target/build.log") ||
        { cat "$target/build.log"; exit 1; }
    log=$target/$(basename "$patch" .patch).log
    found=yes
    (cd "$copy" && RUST_BACKTRACE=0 PLEAT_SIM_STEPS=$steps CARGO_TARGET_DIR=$target timeout 1200 "${CARGO:-cargo}" test -q \
        -p pleat-pager --lib simulation::tests::what -- --nocapture >"$log" 2>&1) && found=no
    why=$(head -n 1 "$patch")
    if [ $found = yes ] && grep -q '^step' "$log"; then
        seed=$(sed -n 's/.*^*seed \([0-9]*\), after .*/\1/p' "$log" | head -n 1)
        after=$(sed -n 's/.*seed [0-9]*, after \([0-9]*\) steps in all.*/\1/p' "$log" | head -n 1)
        what=$(sed -n 's/^step [0-9]*: //p' "$log" | head -n 1 | tr '|\n' '/ ' | cut -c 1-110)
        printf '| %s | %s | %s | %s |\n' "$why" "$after" "$seed" "$what"
    else
        printf '| %s | not found in %s | | |\n' "$why" "$steps"
        missed=$((missed + 1))
    fi
done
rm -rf "$copy"
[ "$missed" = 0 ] || { echo "$missed faults were not found"; exit 1; }
