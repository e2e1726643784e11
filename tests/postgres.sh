#!/bin/sh
# PostgreSQL as a service script starts it, below one `pleat run` of root's: initdb, server and pgbench give up root with
# setpriv or su. Usage: tests/postgres.sh PLEAT MEMORY|none [setpriv|su] [SCALE]; prints what pgbench says. 77: skipped. SHARED is its shared
# buffers (16MB), SECONDS_OF_IT how long pgbench runs (5).
set -eu
PLEAT=$1 MEMORY=$2 HOW=${3:-setpriv} SCALE=${4:-10}
BIN=${PGBIN:-/usr/lib/postgresql/15/bin}
USER_OF_IT=nobody
[ "$(id -u)" = 0 ] || { echo "SKIP: only root can give up root"; exit 77; }
[ -x "$BIN/initdb" ] || { echo "SKIP: no PostgreSQL in $BIN"; exit 77; }
DIR=$(mktemp -d /var/tmp/pleat-postgres-XXXXXX)
trap 'rm -rf "$DIR"' EXIT
chown $USER_OF_IT "$DIR"
cat >"$DIR/session" <<END
set -eu
cd "$DIR"
$BIN/initdb -D "$DIR/data" -A trust >"$DIR/initdb.log" 2>&1
$BIN/pg_ctl -D "$DIR/data" -w -t 60 -l "$DIR/log" -o "-k $DIR -c listen_addresses= -c shared_buffers=${SHARED:-16MB} -c fsync=off" start >/dev/null
$BIN/pgbench -h "$DIR" -i -q -s $SCALE postgres >"$DIR/init.log" 2>&1
$BIN/pgbench -h "$DIR" -c 4 -j 2 -T ${SECONDS_OF_IT:-5} postgres 2>&1 | grep -E 'tps|failed|processed'
$BIN/psql -h "$DIR" -Atc 'select sum(abalance) = (select sum(tbalance) from pgbench_tellers) from pgbench_accounts' postgres
$BIN/pg_ctl -D "$DIR/data" -w -m fast stop >/dev/null
END
chmod 755 "$DIR/session"
case $HOW in
    su) set -- su $USER_OF_IT -s /bin/sh -c "sh $DIR/session" ;;
    *) set -- setpriv --reuid $USER_OF_IT --regid nogroup --clear-groups sh "$DIR/session" ;;
esac
[ "$MEMORY" = none ] || set -- "$PLEAT" run --memory "$MEMORY" --swap-dir "$DIR" --stats "$DIR/stats" -v -- "$@"
"$@"
[ "$MEMORY" = none ] || grep -oE '"(managed_processes|unmanaged_processes|forks)": [0-9]+' "$DIR/stats" | tr '\n' ' '
echo
