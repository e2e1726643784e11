#!/bin/sh
# Makes the pictures of docs/screens again, of real jobs: those of `pleat top`, and that of `pleat report`, which takes Chromium and python3.
#     tests/screens.sh DIR_OF_BUILD
set -eu
HERE=$(cd "$(dirname "$0")/.." && pwd)
BUILD=$(cd "$1" && pwd)
SCREENS=$HERE/docs/screens
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || { echo "missing: chromium" >&2; exit 1; }
DIR=$(mktemp -d /var/tmp/pleat-screens-XXXXXX)
trap 'rm -rf "$DIR"' EXIT
cat >"$DIR/index.py" <<'END'
"""An index of made-up words: it grows, is asked at random, and grows again."""
import random
random.seed(1)
index = {}
def grow(n):
    for i in range(n):
        index.setdefault(f"word{random.randrange(20000)}", []).append((i, random.random()))
def ask(n):
    return sum(len(index.get(f"word{int(random.paretovariate(0.6)) % 20000}", ())) for _ in range(n))
for _ in range(4):
    grow(150000)
    ask(60000)
END
(cd "$DIR" && "$BUILD/pleat" run --memory 50M --name index --trace-stats index.jsonl -- python3 index.py && "$BUILD/pleat" report index.jsonl)
timeout 100 "$chromium" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --window-size=1000,1000 \
    --screenshot="$SCREENS/report.png" "file://$DIR/index.html" >"$DIR/log" 2>&1 || { cat "$DIR/log"; exit 1; }
cd "$HERE" && PLEAT_BIN=$BUILD/pleat PLEAT_SCREENS=$SCREENS cargo test -q -p pleat-e2e --test top screens
ls -l "$SCREENS"
