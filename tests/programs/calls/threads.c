/* What the kernel keeps in a thread's memory: locks, stacks, signals; and how threads end. */
#include "calls.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
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

/* The kernel marks the locks of a thread that ends, wherever they are: these, of different kinds, are pages apart. */
enum { LOCKS = 6 };
static pthread_mutex_t *locks[LOCKS];
enum ending { RETURNS, LEAVES, IS_CANCELLED, LOCKS_LATE, FORKS, ENDINGS };

static void make_locks(void) {
    struct region r = map_region(MB / PAGE);
    pthread_mutexattr_t attributes;
    must(pthread_mutexattr_init(&attributes) == 0);
    must(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    for (int i = 0; i < LOCKS; i++) {
        must(pthread_mutexattr_setprotocol(&attributes, i % 2 ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE) == 0);
        /* The last is in two pages: what links it to the others, and its word. */
        size_t inside = i == LOCKS - 1 ? PAGE - 16 : 64u * (unsigned)i;
        locks[i] = (pthread_mutex_t *)(page_at(r, r.pages / LOCKS * i) + inside);
        must(pthread_mutex_init(locks[i], &attributes) == 0);
    }
}

static void take_locks(void *from) {
    for (int i = (int)(long)from; i < LOCKS; i++)
        must(pthread_mutex_lock(locks[i]) == 0);
    press();
}

static pthread_key_t late;
static pid_t forked;

static void *die_with_locks(void *how) {
    enum ending ending = (enum ending)(long)how;
    if (ending == LOCKS_LATE) {
        must(pthread_mutex_lock(locks[0]) == 0);
        must(pthread_setspecific(late, (void *)1) == 0);
        return NULL;
    }
    take_locks(0);
    if (ending == FORKS) {
        /* From now on its pages are this process's and the child's. */
        forked = fork();
        must(forked >= 0);
        while (forked == 0)
            pause();
        press();
    }
    if (ending == LEAVES)
        pthread_exit(NULL);
    while (ending == IS_CANCELLED)
        pause();
    return NULL;
}

void call_robust(void) {
    must(pthread_key_create(&late, take_locks) == 0);
    for (enum ending ending = RETURNS; ending < ENDINGS; ending++) {
        pthread_t thread;
        make_locks();
        must(pthread_create(&thread, NULL, die_with_locks, (void *)(long)ending) == 0);
        if (ending == IS_CANCELLED)
            must(pthread_cancel(thread) == 0);
        must(pthread_join(thread, NULL) == 0);
        press();
        for (int i = 0; i < LOCKS; i++) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_sec += 2;
            must(pthread_mutex_timedlock(locks[i], &until) == EOWNERDEAD);
            must(pthread_mutex_consistent(locks[i]) == 0 && pthread_mutex_unlock(locks[i]) == 0);
        }
    }
    must(kill(forked, SIGKILL) == 0 && waitpid(forked, NULL, 0) == forked);
}

/* What a thread past the C library's own has of the kernel: a word that is cleared when it ends, and an rseq area, to which it
 * writes on the way back to the program. */
struct past {
    int *word; /* in a page that nothing else touches */
    int is_up;
    /* `struct rseq`, as the kernel has had it from the first. */
    struct {
        uint32_t cpu_id_start, cpu_id;
        uint64_t area;
        uint32_t flags;
    } rseq __attribute__((aligned(32)));
    int chooses;
    unsigned wrong;
};
enum { RSEQ_LENGTH = 32, RSEQ_SIGNATURE = 0x53053053 };

static int run_past(void *argument) {
    struct past *past = argument;
    if (past->chooses)
        syscall(SYS_set_tid_address, past->word);
    bool has_rseq = syscall(SYS_rseq, &past->rseq, RSEQ_LENGTH, 0, RSEQ_SIGNATURE) == 0;
    __atomic_store_n(&past->is_up, 1, __ATOMIC_SEQ_CST);
    struct timespec nap = {.tv_nsec = 3000000};
    for (int i = 0; i < 100; i++) {
        syscall(SYS_nanosleep, &nap, NULL);
        /* It may be moved between two looks, but not each time. */
        unsigned cpu = 0, tries = 0;
        do
            syscall(SYS_getcpu, &cpu, NULL, NULL);
        while (has_rseq && cpu != ((volatile struct past *)past)->rseq.cpu_id && ++tries < 100);
        past->wrong += tries == 100;
    }
    return 0;
}

static void end_past(bool chooses) {
    const size_t stack = 64 << 10;
    struct past *past = middle();
    void *memory = mmap(NULL, stack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(memory != MAP_FAILED);
    past->chooses = chooses;
    past->word = middle();
    *past->word = 1;
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    flags |= chooses ? 0 : CLONE_CHILD_CLEARTID;
    int thread = clone(run_past, (char *)memory + stack, flags, past, NULL, NULL, past->word);
    must(thread > 0);
    while (!__atomic_load_n(&past->is_up, __ATOMIC_SEQ_CST))
        usleep(1000);
    while (syscall(SYS_tgkill, getpid(), thread, 0) == 0)
        press();
    must(*past->word == 0);
    must(past->wrong == 0);
}

void call_cleartid(void) {
    end_past(false);
    end_past(true);
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
