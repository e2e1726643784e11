/* shared KIND MB PROCESSES SECONDS [SEED [SABOTAGE]]: processes that share MB megabytes and check all that they read.
 * KIND is anonymous, closed, open, named or sysv (shared.h); there are 2 to 15 workers. Prints `ok shared`, `SKIP
 * shared why` or `FAIL shared why`; the status is 1 after a FAIL.
 *
 *   workers of even slots   live to the end, or give their slot to a child of theirs and exit
 *   workers of odd slots    are killed at random moments, and others take their place
 *   two more                throw a ball to and fro
 *   readers                 are forked now and then, read everything, and exit
 *   a saboteur              if SABOTAGE is lost, zeros or stale: the test must fail then
 *
 * The first process judges: it reaps all, and at the end compares the counters with what the workers say they have
 * added. Workers that are killed add nothing. */
#include "shared.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static double until;
static struct segment segment;
static uint64_t seed = 1;
static int workers;
static int results; /* a file: what each slot has added to each page */
static pid_t first_process;

int is_judged(void) { return kill(first_process, 0) == 0; }

static int is_killed_at_times(int slot) { return slot % 2 == 1; }

/* A child that goes on with the worker's knowledge, or one that only reads. */
static void fork_something(struct knowledge *k) {
    int gives_over = next_random(&k->random) % 2 && !is_killed_at_times(k->slot);
    pid_t child = fork();
    must(child >= 0);
    if (gives_over && child != 0)
        _exit(0);
    if (gives_over || child != 0) {
        /* The next fork is to differ from what our parent would have done. */
        k->random = mix(k->random + (uint64_t)getpid());
        if (child != 0)
            reap(child, "a reader");
        return;
    }
    /* No lane is ours: should our parent be killed meanwhile, its heir writes there. */
    k->slot = -1;
    check_everything(k);
    _exit(0);
}

static void hand_in(const struct knowledge *k) {
    size_t bytes = segment.pages * sizeof *k->added;
    pwrite_all(results, k->added, bytes, (off_t)(bytes * (size_t)k->slot));
}

static void step(struct knowledge *k) {
    size_t page = next_random(&k->random) % segment.pages;
    check_lane(k, page, (int)(next_random(&k->random) % LANES));
    switch (next_random(&k->random) % 8) {
    case 0:
        use_lock(k, page);
        break;
    case 1:
        if (!is_killed_at_times(k->slot))
            use_spare_page(k);
        break;
    case 2:
    case 3:
        if (!is_killed_at_times(k->slot))
            add_to_counters(k, page);
        break;
    default:
        write_lane(k, page);
    }
    if (next_random(&k->random) % 4096 == 0 && segment.kind != SYSV)
        move_segment(k->segment, &k->random);
    if (next_random(&k->random) % 8192 == 0)
        fork_something(k);
}

static _Noreturn void work(struct knowledge *k, int is_heir) {
    if (is_heir)
        recover_lanes(k);
    while (seconds() < until && is_judged())
        for (int i = 0; i < 64; i++)
            step(k);
    check_everything(k);
    hand_in(k);
    _exit(0);
}

/* Starts a worker; it knows what the judge has seen. */
static pid_t start(struct knowledge *judge, int slot, int is_heir) {
    pid_t child = fork();
    must(child >= 0);
    if (child != 0)
        return child;
    struct knowledge k = begin_knowledge(&segment, slot, seed * 1000 + (uint64_t)getpid());
    memcpy(k.seen, judge->seen, segment.pages * LANES * sizeof *k.seen);
    work(&k, is_heir);
}

static pid_t start_player(int side) {
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        play_ball(&segment, side, until);
        _exit(0);
    }
    return child;
}

static void expect_exit(int status, pid_t child) {
    if (!WIFEXITED(status))
        fail("process %d was killed by signal %d", child, WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        exit(1); /* it has said why */
}

/* Kills one of the workers that may be, waits for it, and starts another in its place. */
static void replace_one(struct knowledge *judge, pid_t *killable) {
    int slot = (int)(next_random(&judge->random) % (unsigned)(workers / 2)) * 2 + 1;
    must(kill(killable[slot], SIGKILL) == 0);
    int status = wait_status(killable[slot]);
    if (WIFEXITED(status)) /* it was at its end, or has failed */
        expect_exit(status, killable[slot]);
    killable[slot] = start(judge, slot, 1);
}

/* Until all have exited. */
static void judge(struct knowledge *k, pid_t *killable) {
    while (seconds() < until - 0.5) {
        for (int i = 0; i < 400; i++)
            check_lane(k, next_random(&k->random) % segment.pages, (int)(next_random(&k->random) % LANES));
        struct timespec pause = {0, 20 * 1000 * 1000};
        nanosleep(&pause, NULL);
        if (workers > 1 && next_random(&k->random) % 8 == 0)
            replace_one(k, killable);
        int status;
        for (pid_t child; (child = waitpid(-1, &status, WNOHANG)) > 0;)
            expect_exit(status, child);
    }
    int status;
    for (pid_t child; (child = wait(&status)) > 0;)
        expect_exit(status, child);
    must(errno == ECHILD);
    check_everything(k);
}

static void compare_counters(void) {
    size_t bytes = segment.pages * sizeof(uint32_t);
    uint32_t *sums = calloc(segment.pages, sizeof *sums), *added = malloc(bytes);
    must(sums && added);
    for (int slot = 0; slot < workers; slot++) {
        pread_all(results, added, bytes, (off_t)(bytes * (size_t)slot));
        for (size_t page = 0; page < segment.pages; page++)
            sums[page] += added[page];
    }
    for (size_t page = 0; page < segment.pages; page++) {
        uint64_t counted = 0;
        for (int i = 0; i < COUNTERS; i++)
            counted += segment.at[page].common.counters[i];
        if (counted != sums[page])
            fail("page %zu has counted to %lu, but %u were added", page, counted, sums[page]);
    }
}

static enum kind kind_of(const char *name) {
    static const char *const names[] = {"anonymous", "closed", "open", "named", "sysv"};
    for (int i = 0; i < 5; i++)
        if (!strcmp(name, names[i]))
            return (enum kind)i;
    fail("no kind %s", name);
}

int main(int argc, char **argv) {
    running = "shared";
    first_process = getpid();
    if (argc < 5)
        fail("usage: shared KIND MB PROCESSES SECONDS [SEED [SABOTAGE]]");
    size_t pages = strtoul(argv[2], NULL, 10) * (MB / PAGE);
    workers = atoi(argv[3]);
    seed = argc > 5 ? strtoul(argv[5], NULL, 10) : 1;
    if (workers < 1 || workers > LANES || pages < 256)
        fail("1 to %d workers, 1 MB and more", LANES);
    size_t spare = pages / 8 / LANES * LANES;
    until = seconds() + atof(argv[4]);
    segment = make_segment(kind_of(argv[1]), pages - spare, spare);
    begin_locks(&segment);
    results = temporary_file(0);
    must(ftruncate(results, (off_t)(segment.pages * sizeof(uint32_t) * LANES)) == 0);
    /* Children of workers that have exited are ours to reap. */
    must(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    struct knowledge k = begin_knowledge(&segment, -1, seed);
    pid_t killable[LANES] = {0};
    for (int slot = 0; slot < workers; slot++)
        killable[slot] = start(&k, slot, 0);
    start_player(0);
    start_player(1);
    if (argc > 6 && fork() == 0) {
        alarm((unsigned)atoi(argv[4]) + 1);
        sabotage(&segment, argv[6]);
    }
    judge(&k, killable);
    compare_counters();
    puts("ok shared");
    return 0;
}
