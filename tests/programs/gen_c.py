#!/usr/bin/env python3
"""Prints one large C file that keeps gcc -O2 as busy as the SQLite amalgamation does: many
functions that call each other, with loops, switches, structs and tables.

    gen_c.py FUNCTIONS > big.c
"""
import random
import sys

HEAD = """#include <stddef.h>
#include <stdint.h>
#include <string.h>
struct cursor { uint32_t at, end; const unsigned char *data; struct cursor *next; int64_t sum; };
struct table { int32_t rows[64]; char name[24]; struct cursor *open; double weight; };
"""

FUNCTION = """
static const uint32_t k{n}[] = {{{constants}}};
{linkage} int64_t step{n}(struct table *t, struct cursor *c, int64_t x)
{{
    int64_t a = x ^ {c0}, b = c->sum + {c1};
    for (uint32_t i = c->at; i < c->end && i < {c2}; i++) {{
        switch (c->data[i] & 7) {{
        case 0: a += k{n}[i % {size}]; break;
        case 1: b ^= a << {s0}; t->rows[i & 63] += (int32_t)b; break;
        case 2: a = a * {c3} + b; if (a < 0) a = -a; break;
        case 3: for (int j = 0; j < {loop}; j++) b += t->rows[j] * k{n}[j % {size}]; break;
        case 4: if (c->next && c->next->at < i) {{ a ^= c->next->sum; c->next->at++; }} break;
        case 5: memmove(t->name, t->name + 1, {move}); t->name[{move}] = (char)a; break;
        case 6: t->weight = t->weight * 0.{c0} + (double)b; break;
        default: b -= i * {c1}; break;
        }}
{calls}    }}
    t->rows[{row}] ^= (int32_t)(a >> {s0});
    c->sum = a - b;
    return a + b + (int64_t)strlen(t->name);
}}
"""


def function(n, rng):
    calls = "".join(
        f"        if ((a & {mask}) == {k}) b += step{rng.randrange(n)}(t, c->next, a + {k});\n"
        for k, mask in enumerate(rng.sample([15, 31, 63, 127, 255], 3))
    ) if n else ""
    size = rng.randrange(8, 40)
    return FUNCTION.format(
        n=n, calls=calls, size=size, row=rng.randrange(64), move=rng.randrange(3, 20),
        constants=", ".join(str(rng.getrandbits(31)) for _ in range(size)),
        linkage="static" if rng.random() < 0.6 else "", loop=rng.choice([4, 8, 16, 32]),
        s0=rng.randrange(1, 20), c0=rng.randrange(1, 9999), c1=rng.randrange(1, 9999),
        c2=rng.randrange(100, 9999), c3=rng.randrange(3, 999, 2))


def main(count):
    rng = random.Random(11)
    print(HEAD)
    for n in range(count):
        print(function(n, rng))
    print("int64_t run(struct table *t, struct cursor *c)\n{\n    int64_t sum = 0;")
    for n in range(count):
        print(f"    sum += step{n}(t, c, sum);")
    print("    return sum;\n}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
