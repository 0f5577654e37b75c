/* Tells libc that its thread has become another one. Parked programs fork by a system call, of which libc knows nothing.
 *
 * libc keeps the number of its thread beside the thread's other data. Each libc, and each version of it, has another place for it. So the place
 * is asked of libc itself: it forks once by its own function. The words that held the old number and hold the new one in that child are
 * the words that must be set. Then a fork of ours proves that libc knows itself: it locks mutexes that note their owner, and signals itself. */
#define _GNU_SOURCE
#include "park.h"
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define PAGE 4096
#define AROUND 2 /* pages before and after the one to which the thread register points; glibc's data of a thread are smaller than a page */
#define MOST 16

static struct {
	int *words[MOST]; /* in which libc keeps the number */
	unsigned count;
	void *robust;
	size_t robust_size;
	int *cleared; /* the word that the kernel clears when the thread ends; libc waits for that */
} thread;

typedef int fork_function(void);

/* The words with this number. More than can be kept are as good as none. */
static unsigned find_words(int *from, const int *to, int number, int *found[MOST]) {
	unsigned count = 0;
	for (; from < to; from++)
		if (*from == number) {
			if (count == MOST)
				return 0;
			found[count++] = from;
		}
	return count;
}

/* Whether memory can be read: the kernel refuses to write what it cannot read. */
static int is_readable(int pipe, const char *place) {
	return SYSTEM(SYS_write, pipe, place, 1) == 1;
}

/* The readable pages around the thread's data. */
static void find_block(const char *middle, int **from, const int **to) {
	int ends[2];
	const char *first = (const char *)((uintptr_t)middle & ~(uintptr_t)(PAGE - 1)), *last = first + PAGE;
	if (SYSTEM(SYS_pipe2, ends, O_CLOEXEC | O_NONBLOCK) == 0) {
		for (int i = 0; i < AROUND && is_readable(ends[1], first - PAGE); i++)
			first -= PAGE;
		for (int i = 0; i < AROUND && is_readable(ends[1], last); i++)
			last += PAGE;
		SYSTEM(SYS_close, ends[0]);
		SYSTEM(SYS_close, ends[1]);
	}
	*from = (int *)(uintptr_t)first;
	*to = (const int *)(const void *)last;
}

/* The status with which a child ended; negative if that is not known. */
static int wait_for(long child) {
	int status = -1;
	long result;
	do
		result = SYSTEM(SYS_wait4, child, &status, __WALL, NULL);
	while (result == -EINTR);
	return result == child ? status : -1;
}

static void end_with_parent(int parent) {
	SYSTEM(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (SYSTEM(SYS_getppid) != parent)
		leave(1);
}

/* Keeps the words that libc's own fork has set. False if it could not fork. */
static int keep_words_of_fork(int **words, unsigned *count, fork_function *fork_of_libc) {
	const int parent = (int)SYSTEM(SYS_getpid);
	const long place = SYSTEM(SYS_mmap, NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (place < 0 && place > -PAGE)
		return 0;
	volatile char *is_set = (volatile char *)place;
	const int child = fork_of_libc();
	if (child == 0) {
		const int self = (int)SYSTEM(SYS_gettid);
		end_with_parent(parent);
		for (unsigned i = 0; i < *count; i++)
			is_set[i] = *words[i] == self;
		leave(0);
	}
	const int has_forked = child > 0 && wait_for(child) == 0;
	unsigned kept = 0;
	for (unsigned i = 0; has_forked && i < *count; i++)
		if (is_set[i])
			words[kept++] = words[i];
	if (has_forked)
		*count = kept;
	SYSTEM(SYS_munmap, place, PAGE);
	return has_forked;
}

/* Without a fork of libc's, only a word is believed that libc has registered with the kernel, or that is the only one. */
static void keep_words_without_fork(int **words, unsigned *count, int *registered) {
	for (unsigned i = 0; i < *count; i++)
		if (words[i] == registered) {
			words[0] = registered;
			*count = 1;
		}
	if (*count > 1)
		*count = 0;
}

/* ---- the proof */

#define FIND(result, name, parameters)                                                                                       \
	result(*name) parameters;                                                                                                \
	*(void **)(&name) = wafpark_find(#name);

union mutex {
	int words[32]; /* larger than any libc's */
	pthread_mutex_t mutex;
};

static int holds_number(const union mutex *mutex, int number) {
	/* The highest bits of a word are flags of mutexes whose owner may end. */
	for (size_t i = 0; i < sizeof mutex->mutex / sizeof(int); i++)
		if ((mutex->words[i] & 0x3fffffff) == number)
			return 1;
	return 0;
}

/* A libc without threads has functions that do nothing. */
static int is_untouched(const union mutex *mutex, const union mutex *before) {
	for (size_t i = 0; i < sizeof mutex->words / sizeof(int); i++)
		if (mutex->words[i] != before->words[i])
			return 0;
	return 1;
}

/* Whether a mutex of this kind notes this thread as its owner, and knows it again. */
static int proves_mutex(int kind, int is_robust, int self) {
	FIND(int, pthread_mutexattr_init, (pthread_mutexattr_t *))
	FIND(int, pthread_mutexattr_settype, (pthread_mutexattr_t *, int))
	FIND(int, pthread_mutexattr_setrobust, (pthread_mutexattr_t *, int))
	FIND(int, pthread_mutex_init, (pthread_mutex_t *, const pthread_mutexattr_t *))
	FIND(int, pthread_mutex_lock, (pthread_mutex_t *))
	FIND(int, pthread_mutex_unlock, (pthread_mutex_t *))
	union mutex mutex = {{0}};
	union {
		long words[16];
		pthread_mutexattr_t attributes;
	} of = {{0}};
	if (!pthread_mutexattr_init || !pthread_mutexattr_settype || !pthread_mutexattr_setrobust || !pthread_mutex_init ||
	    !pthread_mutex_lock || !pthread_mutex_unlock)
		return 1;
	if (pthread_mutexattr_init(&of.attributes) || pthread_mutexattr_settype(&of.attributes, kind) ||
	    (is_robust && pthread_mutexattr_setrobust(&of.attributes, PTHREAD_MUTEX_ROBUST)) ||
	    pthread_mutex_init(&mutex.mutex, &of.attributes))
		return 1;
	const union mutex before = mutex;
	const int first = pthread_mutex_lock(&mutex.mutex);
	if (first == 0 && is_untouched(&mutex, &before))
		return 1;
	if (first != 0 || !holds_number(&mutex, self))
		return 0;
	if (pthread_mutex_lock(&mutex.mutex) != (kind == PTHREAD_MUTEX_RECURSIVE ? 0 : EDEADLK))
		return 0;
	if (kind == PTHREAD_MUTEX_RECURSIVE && pthread_mutex_unlock(&mutex.mutex) != 0)
		return 0;
	return pthread_mutex_unlock(&mutex.mutex) == 0 && pthread_mutex_unlock(&mutex.mutex) == EPERM;
}

/* Whether a signal that this thread has sent to itself arrives here. All signals are blocked. */
static int has_arrived(int signal) {
	const uint64_t wanted = (uint64_t)1 << (signal - 1), now[2] = {0, 0};
	return SYSTEM(SYS_rt_sigtimedwait, &wanted, NULL, now, sizeof wanted) == signal;
}

static int proves_signals(void) {
	const uint64_t all = ~(uint64_t)0;
	FIND(int, raise, (int))
	FIND(int, pthread_kill, (pthread_t, int))
	FIND(pthread_t, pthread_self, (void))
	SYSTEM(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, sizeof all);
	if (raise && (raise(SIGUSR1) != 0 || !has_arrived(SIGUSR1)))
		return 0;
	return !pthread_kill || !pthread_self || (pthread_kill(pthread_self(), SIGUSR2) == 0 && has_arrived(SIGUSR2));
}

static int proves_number(int self) {
	FIND(int, gettid, (void))
	return !gettid || gettid() == self;
}

static int knows_itself(void) {
	const int self = (int)SYSTEM(SYS_gettid);
	return proves_number(self) && proves_mutex(PTHREAD_MUTEX_RECURSIVE, 0, self) && proves_mutex(PTHREAD_MUTEX_ERRORCHECK, 0, self) &&
	       proves_mutex(PTHREAD_MUTEX_ERRORCHECK, 1, self) && proves_mutex(PTHREAD_MUTEX_RECURSIVE, 1, self) && proves_signals();
}

/* ---- what the other files call */

HIDDEN void wafpark_adopt_thread(void) {
	const int self = (int)SYSTEM(SYS_gettid);
	for (unsigned i = 0; i < thread.count; i++)
		*thread.words[i] = self;
	if (thread.robust)
		SYSTEM(SYS_set_robust_list, thread.robust, thread.robust_size);
	if (thread.cleared)
		SYSTEM(SYS_set_tid_address, thread.cleared);
}

static enum wafpark_obstacle prove_thread(void) {
	const int parent = (int)SYSTEM(SYS_getpid);
	const long child = SYSTEM(SYS_clone, 0, 0, 0, 0, 0);
	if (child == 0) {
		end_with_parent(parent);
		wafpark_adopt_thread();
		leave(knows_itself() ? 0 : 1);
	}
	if (child < 0)
		return WAFPARK_FORK;
	return wait_for(child) == 0 ? WAFPARK_NONE : WAFPARK_THREAD;
}

HIDDEN enum wafpark_obstacle wafpark_find_thread(void) {
	int *from;
	const int *to;
	find_block((const char *)__builtin_thread_pointer(), &from, &to);
	thread.count = find_words(from, to, (int)SYSTEM(SYS_gettid), thread.words);
	SYSTEM(SYS_get_robust_list, 0, &thread.robust, &thread.robust_size);
	if (SYSTEM(SYS_prctl, PR_GET_TID_ADDRESS, &thread.cleared, 0, 0, 0) != 0)
		thread.cleared = NULL;
	fork_function *fork_of_libc;
	/* The first one runs no handlers of the program's. Old libcs do not have it. */
	*(void **)(&fork_of_libc) = wafpark_find("_Fork");
	if (!fork_of_libc)
		*(void **)(&fork_of_libc) = wafpark_find("fork");
	if (!fork_of_libc)
		keep_words_without_fork(thread.words, &thread.count, thread.cleared);
	else if (!keep_words_of_fork(thread.words, &thread.count, fork_of_libc))
		return WAFPARK_FORK;
	return prove_thread();
}
