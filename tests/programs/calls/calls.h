/* System calls on pages that are away: what each test here shares. A test fills a few megabytes, has them pushed out
 * by more memory than the budget has room for, makes the call that it is about, and checks every byte. Pages, ways to
 * fail and helpers are those of ../torture. Without pleat every test passes, too. */
#ifndef CALLS_H
#define CALLS_H

#include "../torture/torture.h"

#include <stdbool.h>

/* The tests, in the files that have them. */
#define CALLS(X)                                                                          \
    /* advice.c */                                                                        \
    X(dontneed) X(mfree) X(hugep) X(dontfork) X(wipeonfork) X(keeponfork) X(mergeable)    \
    X(populate) X(mappopulate) X(guard) X(guards) X(guardsraw) X(guardsinner) X(cold)     \
    X(mlock) X(mlockall) X(mincore)                                                       \
    /* states.c */                                                                        \
    X(freeraw) X(dontneedlocked) X(collapse) X(foreignadvice) X(mseal) X(pkeys)           \
    X(softdirty) X(clearrefs) X(vmaname) X(mbind) X(droppable)                            \
    /* layout.c */                                                                        \
    X(mremap) X(dontunmap) X(protnone) X(reserve) X(brk) X(fixedover) X(stackdeep)        \
    X(rlimitas) X(storm) X(mrstorm) X(protstorm)                                          \
    /* transfers.c */                                                                     \
    X(sysvshm) X(shanon) X(memfd) X(vmreadv) X(procmem) X(splice) X(vmspliceheld)         \
    X(odirect) X(sendfile) X(aio) X(readinto) X(socket) X(writefull) X(closeall)          \
    /* threads.c */                                                                       \
    X(futex) X(futexpi) X(robust) X(cleartid) X(altstack) X(sigstack) X(threads) X(thrdjoin) X(threadchurn)       \
    X(itimer) X(rawexit) X(lastthread)                                                    \
    /* processes.c */                                                                     \
    X(vfork) X(clonevm) X(clonevmfiles) X(rawfork) X(rawwiped) X(underfork) X(forkpress)     \
    X(nestfork) X(bornmaps) X(execthread) X(daemonize) X(coredump) X(ptracepeek)                      \
    /* rights.c */                                                                        \
    X(setuid) X(setuidearly) X(seteuid) X(nodump) X(nnp) X(seccompstrict) X(ownuffd)

#define DECLARE(name) void call_##name(void);
CALLS(DECLARE)
#undef DECLARE

/* Eight megabytes, as most tests take. */
#define PAGES (8 * MB / PAGE)

/* Pushes out what was there before: fills more memory than the budget has room for. */
void press(void);
/* Gives that memory up again. */
void relieve(void);
/* Memory of `PAGES` that holds `seed`, pushed out. */
struct region away(uint64_t seed);
/* A child that ends with status 0 if it finds `seed` in all of it. */
void expect_in_child(struct region r, uint64_t seed, const char *who);
/* The signal that reading this address raises; 0: none. */
int signal_of_reading(const volatile unsigned char *at);
double seconds(void);

#endif
