#!/usr/bin/env python3
"""Prints an SQL script for `sqlite3 :memory:`: a table of orders with two indexes, updates and
deletes all over it, and sums that depend on every row.

    sqlite_mem.py ROWS | sqlite3 :memory:          about 0.5 KB of memory per row

SQLite makes the data itself, by a recursive query without random(), so that every run gives
the same answers.
"""
import sys

SCRIPT = """
PRAGMA journal_mode = OFF;
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER, item TEXT, note TEXT, price REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
INSERT INTO orders
SELECT i, (i * 7919) % 10007, printf('item %d-%x', i % 977, i * 2654435761 % 4294967296),
       printf('%.60c %d %.60c', substr('abcdefghij', i % 10 + 1, 1), i * 31, 'x') ||
       hex(printf('%d', i * 48271 % 2147483647)) || printf('%0100d', i), (i % 9973) / 7.0
FROM n;
CREATE INDEX by_customer ON orders(customer, price);
CREATE INDEX by_item ON orders(item);
SELECT count(*), round(sum(price), 3), sum(length(note)) FROM orders;
UPDATE orders SET price = price + 1, note = note || ' changed' WHERE id * 40503 % 65536 < 9000;
UPDATE orders SET customer = customer + 1 WHERE customer % 13 = 5;
DELETE FROM orders WHERE id * 30011 % 1000 < 50;
SELECT count(*), round(sum(price), 3), sum(length(note)), sum(customer) FROM orders;
SELECT customer, count(*), round(sum(price), 3), min(item) FROM orders
 WHERE customer % 500 = 0 GROUP BY customer ORDER BY customer;
SELECT sum(unicode(substr(note, 1 + id % 100, 1)) * (id % 1013)) FROM orders;
PRAGMA integrity_check;
"""

if __name__ == "__main__":
    print(SCRIPT.format(rows=int(sys.argv[1])))
