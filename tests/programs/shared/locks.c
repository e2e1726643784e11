/* Locks and futexes in shared memory: robust locks of which some owners are killed, and a ball that two processes
 * throw to and fro over all pages. */
#include "shared.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Nobody has a lock, or the ball, for so long. */
#define PATIENCE_S 60

void begin_locks(struct segment *s) {
    pthread_mutexattr_t kind;
    must(pthread_mutexattr_init(&kind) == 0);
    must(pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED) == 0);
    must(pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST) == 0);
    for (size_t page = 0; page < s->pages; page++)
        must(pthread_mutex_init(&s->at[page].common.lock, &kind) == 0);
}

static void pause_for(long microseconds) {
    struct timespec t = {0, microseconds * 1000};
    nanosleep(&t, NULL);
}

void use_lock(struct knowledge *k, size_t page) {
    struct common *common = &k->segment->at[page].common;
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += PATIENCE_S;
    int error = pthread_mutex_timedlock(&common->lock, &limit);
    if (error == EOWNERDEAD) {
        common->right = common->left;
        must(pthread_mutex_consistent(&common->lock) == 0);
    } else if (error != 0) {
        fail("page %zu: its lock answers %s", page, strerror(error));
    } else if (common->left != common->right) {
        fail("page %zu: its lock guarded %lu and %lu", page, common->left, common->right);
    }
    common->left++;
    /* Long enough that the page may be taken away meanwhile, and that who has the lock is killed. */
    if (next_random(&k->random) % 16 == 0) {
        for (int i = 0; i < 64; i++)
            check_lane(k, next_random(&k->random) % k->segment->pages, 0);
        pause_for(2000);
    }
    common->right++;
    must(pthread_mutex_unlock(&common->lock) == 0);
}

static long futex(_Atomic uint32_t *word, int what, uint32_t value, const struct timespec *limit) {
    return syscall(SYS_futex, word, what, value, limit, NULL, 0);
}

void play_ball(struct segment *s, int side, double until) {
    for (uint32_t round = 1;; round++) {
        _Atomic uint32_t *ball = &s->at[(round * 7919u) % s->pages].common.ball;
        uint32_t mine = round * 4 + (uint32_t)side, other = round * 4 + 1 - (uint32_t)side;
        uint32_t over = round * 4 + 2;
        /* Side 0 throws first, and says when it is over. */
        double limit = seconds() + PATIENCE_S;
        if (side == 0 && seconds() > until) {
            atomic_store(ball, over);
            futex(ball, FUTEX_WAKE, 1, NULL);
            return;
        }
        if (side == 0) {
            atomic_store(ball, mine);
            futex(ball, FUTEX_WAKE, 1, NULL);
        }
        for (uint32_t now; (now = atomic_load(ball)) != other;) {
            if (now == over)
                return;
            struct timespec wait = {1, 0};
            futex(ball, FUTEX_WAIT, now, &wait);
            if (!is_judged())
                return;
            if (seconds() > limit)
                fail("round %u: nobody has thrown the ball for %d s; it shows %u", round, PATIENCE_S, now);
        }
        if (side == 1) {
            atomic_store(ball, mine);
            futex(ball, FUTEX_WAKE, 1, NULL);
        }
    }
}
