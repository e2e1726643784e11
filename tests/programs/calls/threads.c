/* What the kernel keeps in a thread's memory: locks, stacks, signals; and how threads end. */
#include "calls.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static long futex(int *word, int operation, int value) {
    return syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

static void *wait_for_word(void *argument) {
    int *word = argument;
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 0)
        futex(word, FUTEX_WAIT_PRIVATE, 0);
    return NULL;
}

/* A page in the middle of a megabyte. */
static void *middle(void) {
    return page_at(map_region(MB / PAGE), MB / PAGE / 2) + 64;
}

void call_futex(void) {
    int *word = middle();
    pthread_t thread;
    must(pthread_create(&thread, NULL, wait_for_word, word) == 0);
    usleep(10000);
    press();
    press();
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    press();
    futex(word, FUTEX_WAKE_PRIVATE, 1);
    must(pthread_join(thread, NULL) == 0);
}

static pthread_mutex_t *mutex_of(int (*set)(pthread_mutexattr_t *, int), int kind) {
    pthread_mutexattr_t attributes;
    pthread_mutex_t *mutex = middle();
    must(pthread_mutexattr_init(&attributes) == 0 && set(&attributes, kind) == 0);
    must(pthread_mutex_init(mutex, &attributes) == 0);
    return mutex;
}

void call_futexpi(void) {
    pthread_mutex_t *mutex = mutex_of(pthread_mutexattr_setprotocol, PTHREAD_PRIO_INHERIT);
    for (int i = 0; i < 3; i++) {
        must(pthread_mutex_lock(mutex) == 0);
        press();
        must(pthread_mutex_unlock(mutex) == 0);
        press();
    }
}

static void *die_with_lock(void *mutex) {
    must(pthread_mutex_lock(mutex) == 0);
    press();
    return NULL;
}

/* The kernel marks the locks of a thread that ends; it passes over those that are away (docs/architecture.md). What
 * must hold is that the join comes back. */
void call_robust(void) {
    pthread_mutex_t *mutex = mutex_of(pthread_mutexattr_setrobust, PTHREAD_MUTEX_ROBUST);
    pthread_t thread;
    must(pthread_create(&thread, NULL, die_with_lock, mutex) == 0);
    must(pthread_join(thread, NULL) == 0);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 200000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int got = pthread_mutex_timedlock(mutex, &until);
    must(got == EOWNERDEAD || got == ETIMEDOUT);
}

static volatile int signals_seen;

static void on_signal(int signal) {
    unsigned char frame[8192];
    memset(frame, signal, sizeof frame);
    signals_seen += *(volatile unsigned char *)&frame[17] == signal;
}

static void catch(int signal, int flags) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    must(sigaction(signal, &action, NULL) == 0);
}

void call_altstack(void) {
    struct region r = map_region(MB / PAGE);
    stack_t stack = {.ss_sp = page_at(r, r.pages / 4), .ss_size = MB / 2};
    must(sigaltstack(&stack, NULL) == 0);
    catch(SIGUSR1, SA_ONSTACK);
    for (int i = 0; i < 10; i++) {
        press();
        raise(SIGUSR1);
    }
    must(signals_seen == 10);
}

static pthread_barrier_t barrier;
static int stop;

static void *sleep_deep(void *argument) {
    unsigned char deep[256 * 1024];
    (void)argument;
    memset(deep, 7, sizeof deep);
    pthread_barrier_wait(&barrier);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        pause();
    for (size_t i = 0; i < sizeof deep; i++)
        if (((volatile unsigned char *)deep)[i] != 7)
            fail("a stack has changed");
    return NULL;
}

void call_sigstack(void) {
    enum { THREADS = 20 };
    pthread_t threads[THREADS];
    catch(SIGUSR2, 0);
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, sleep_deep, NULL) == 0);
    pthread_barrier_wait(&barrier);
    for (int round = 0; round < 3; round++) {
        press();
        for (int i = 0; i < THREADS; i++)
            must(pthread_kill(threads[i], SIGUSR2) == 0);
        usleep(20000);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        /* Until it has seen that: it may have looked just before. */
        while (pthread_tryjoin_np(threads[i], NULL) == EBUSY) {
            pthread_kill(threads[i], SIGUSR2);
            usleep(1000);
        }
}

static void *wait_between(void *argument) {
    const unsigned char byte = (unsigned char)(long)argument;
    unsigned char frame[20000];
    memset(frame, byte, sizeof frame);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < sizeof frame; i++)
        if (((volatile unsigned char *)frame)[i] != byte)
            fail("a stack has changed");
    return NULL;
}

void call_threads(void) {
    enum { THREADS = 400 };
    static pthread_t threads[THREADS];
    pthread_attr_t attributes;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 * 1024);
    for (long i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], &attributes, wait_between, (void *)i) == 0);
    pthread_barrier_wait(&barrier);
    press();
    press();
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        must(pthread_join(threads[i], NULL) == 0);
}

static int sleep_a_little(void *argument) {
    usleep(100000);
    return (int)(long)argument;
}

/* The kernel marks a thread's end in its control block, whoever made the thread. */
void call_thrdjoin(void) {
    thrd_t thread;
    int result = 0;
    must(thrd_create(&thread, sleep_a_little, (void *)-5) == thrd_success);
    press();
    press();
    press();
    must(thrd_join(thread, &result) == thrd_success && result == -5);
}

static void *be_short(void *argument) {
    unsigned char frame[9000];
    memset(frame, (int)(long)argument, sizeof frame);
    return (void *)(long)((volatile unsigned char *)frame)[77];
}

void call_threadchurn(void) {
    enum { AT_ONCE = 32 };
    double end = seconds() + 0.5;
    for (int round = 0; seconds() < end; round++) {
        pthread_t threads[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++)
            must(pthread_create(&threads[i], NULL, be_short, NULL) == 0);
        for (int i = 0; i < AT_ONCE; i++)
            must(pthread_join(threads[i], NULL) == 0);
        if (round % 100 == 0)
            press();
    }
}

void call_itimer(void) {
    catch(SIGALRM, SA_RESTART);
    struct itimerval often = {{0, 300}, {0, 300}};
    must(setitimer(ITIMER_REAL, &often, NULL) == 0);
    struct region r = map_region(PAGES);
    for (int seed = 1; seed < 4; seed++) {
        fill(r, seed);
        press();
        expect(r, seed, "among signals");
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
}

/* The only thread leaves by exit(2) itself, not by exit_group(2). */
void call_rawexit(void) {
    struct region r = away(1);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        expect(r, 1, "in the child");
        syscall(SYS_exit, 7);
    }
    int status = wait_status(child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
        fail("a child that left with 7 ended with %x", status);
}

static void *leave_last(void *argument) {
    (void)argument;
    usleep(50000);
    syscall(SYS_exit, 3);
    return NULL;
}

/* The first thread leaves before others do. */
void call_lastthread(void) {
    away(1);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        pthread_t thread;
        must(pthread_create(&thread, NULL, leave_last, NULL) == 0);
        syscall(SYS_exit, 3);
    }
    int status = wait_status(child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 3)
        fail("a child whose threads left with 3 ended with %x", status);
}
