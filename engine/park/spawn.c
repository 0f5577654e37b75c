/* Sends what a driver starts by posix_spawn to the engine, as route.c does with what it executes. gcc's driver does so from version 14 on.
 *
 * libc makes such a child and executes the program in it by calls of its own, which no library can replace. So this file makes the child,
 * does in it what libc would do, and asks the engine. If the engine does not run the program, that child ends without a trace, and libc's own
 * function is called: its errors are libc's.
 *
 * What the child must do is written in an object of libc's, in a form that libc may change. So the calls that fill the object are noted, and a
 * copy of the object. If an object has changed in any other way, or asks for more than descriptors, libc's own function is called at once. */
#define _GNU_SOURCE
#include "park.h"
#include "record.h"
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define OBJECTS 4 /* a driver has one at a time */
#define STEPS 16
#define STACK (64 << 10)

#define REAL(result, name, parameters)                                                                                       \
	static result(*real) parameters;                                                                                         \
	if (!real)                                                                                                               \
		*(void **)(&real) = wafpark_find(#name);

#define FIND(result, name, parameters)                                                                                       \
	result(*name) parameters;                                                                                                \
	*(void **)(&name) = wafpark_find(#name);

/* ---- what libc was told to do with descriptors */

struct step {
	int from, to; /* `from` becomes `to`; if `to` is negative, `from` is closed */
};

static struct noted {
	const posix_spawn_file_actions_t *object; /* NULL: this place is free */
	posix_spawn_file_actions_t copy; /* after the last call that was noted */
	unsigned count;
	struct step steps[STEPS];
} noted[OBJECTS];

static struct noted *find_noted(const posix_spawn_file_actions_t *object) {
	for (int i = 0; i < OBJECTS; i++)
		if (noted[i].object == object)
			return &noted[i];
	return NULL;
}

static int is_as_noted(const struct noted *of) {
	const unsigned char *now = (const void *)of->object, *then = (const void *)&of->copy;
	for (size_t i = 0; i < sizeof of->copy; i++)
		if (now[i] != then[i])
			return 0;
	return 1;
}

static void copy_object(struct noted *of) {
	unsigned char *to = (void *)&of->copy;
	for (size_t i = 0; i < sizeof of->copy; i++)
		to[i] = ((const unsigned char *)of->object)[i];
}

static void forget(const posix_spawn_file_actions_t *object) {
	struct noted *of = find_noted(object);
	if (of)
		of->object = NULL;
}

EXPORT int posix_spawn_file_actions_init(posix_spawn_file_actions_t *object) {
	REAL(int, posix_spawn_file_actions_init, (posix_spawn_file_actions_t *))
	forget(object);
	const int error = real(object);
	struct noted *of = wafpark_is_routed() && error == 0 ? find_noted(NULL) : NULL;
	if (of) {
		of->object = object;
		of->count = 0;
		copy_object(of);
	}
	return error;
}

EXPORT int posix_spawn_file_actions_destroy(posix_spawn_file_actions_t *object) {
	REAL(int, posix_spawn_file_actions_destroy, (posix_spawn_file_actions_t *))
	forget(object);
	return real(object);
}

/* The object to which a step is about to be added; NULL if it is not known what it holds. */
static struct noted *find_current(const posix_spawn_file_actions_t *object) {
	struct noted *of = find_noted(object);
	return of && of->count < STEPS && is_as_noted(of) ? of : NULL;
}

static void note_step(struct noted *of, struct step step) {
	of->steps[of->count++] = step;
	copy_object(of);
	/* Only the standard streams reach a parked program. */
	if (step.to > 2)
		of->object = NULL;
}

EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *object, int from, int to) {
	REAL(int, posix_spawn_file_actions_adddup2, (posix_spawn_file_actions_t *, int, int))
	struct noted *of = find_current(object);
	const int error = real(object, from, to);
	if (of && error == 0)
		note_step(of, (struct step){from, to});
	return error;
}

EXPORT int posix_spawn_file_actions_addclose(posix_spawn_file_actions_t *object, int file) {
	REAL(int, posix_spawn_file_actions_addclose, (posix_spawn_file_actions_t *, int))
	struct noted *of = find_current(object);
	const int error = real(object, file);
	if (of && error == 0)
		note_step(of, (struct step){file, -1});
	return error;
}

/* ---- the child */

struct job {
	const char *path;
	char *const *argv, *const *env;
	uint32_t token;
	int parent;
	const struct noted *actions; /* or NULL */
	uint64_t defaults, mask; /* of signals */
	volatile int is_declined;
};

/* The kernel's struct sigaction: handler, flags, restorer, mask. An exec would reset handlers, and here none follows. glibc also ignores the two
 * signals that it uses itself, which no program notices: so parts are told nothing of that. */
static void reset_signals(const struct job *job) {
	const uint64_t none[4] = {0};
	for (int signal = 1; signal <= 64; signal++) {
		uint64_t action[4] = {0};
		const int is_named = job->defaults >> (signal - 1) & 1;
		if (SYSTEM(SYS_rt_sigaction, signal, NULL, action, sizeof(uint64_t)) == 0 &&
		    (is_named || (action[0] != (uintptr_t)SIG_DFL && action[0] != (uintptr_t)SIG_IGN)))
			SYSTEM(SYS_rt_sigaction, signal, none, NULL, sizeof(uint64_t));
	}
}

static int take_steps(const struct noted *actions) {
	for (unsigned i = 0; actions && i < actions->count; i++) {
		const struct step *step = &actions->steps[i];
		if (step->to < 0)
			SYSTEM(SYS_close, step->from);
		else if (step->to != step->from ? SYSTEM(SYS_dup3, step->from, step->to, 0) < 0 : SYSTEM(SYS_fcntl, step->from, F_SETFD, 0) < 0)
			return 0;
	}
	return 1;
}

/* It runs in its parent's memory, on a stack of its own, while its parent waits. */
static int run_child(void *given) {
	struct job *job = given;
	reset_signals(job);
	if (take_steps(job->actions)) {
		SYSTEM(SYS_rt_sigprocmask, SIG_SETMASK, &job->mask, NULL, sizeof job->mask);
		wafpark_offer_exec(job->path, job->argv, job->env, job->token, job->parent);
	}
	job->is_declined = 1;
	leave(0);
}

/* ---- the attributes, as libc's own functions tell them */

static uint64_t first_word(const sigset_t *set) {
	return *(const uint64_t *)(const void *)set;
}

/* False if they ask for more than signals: a process group or session of its own, whose number would be another one, a scheduler, a user, a
 * control group, or what a later libc may have. */
static int read_attributes(const posix_spawnattr_t *attributes, struct job *job) {
	const int usual = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_USEVFORK;
	FIND(int, posix_spawnattr_getflags, (const posix_spawnattr_t *, short *))
	FIND(int, posix_spawnattr_getsigmask, (const posix_spawnattr_t *, sigset_t *))
	FIND(int, posix_spawnattr_getsigdefault, (const posix_spawnattr_t *, sigset_t *))
	short flags = 0;
	sigset_t set;
	if (!attributes)
		return 1;
	if (!posix_spawnattr_getflags || posix_spawnattr_getflags(attributes, &flags) || (flags & ~usual))
		return 0;
	if (flags & POSIX_SPAWN_SETSIGMASK) {
		if (!posix_spawnattr_getsigmask || posix_spawnattr_getsigmask(attributes, &set))
			return 0;
		job->mask = first_word(&set);
	}
	if (flags & POSIX_SPAWN_SETSIGDEF) {
		if (!posix_spawnattr_getsigdefault || posix_spawnattr_getsigdefault(attributes, &set))
			return 0;
		job->defaults = first_word(&set);
	}
	return 1;
}

static int read_actions(const posix_spawn_file_actions_t *actions, struct job *job) {
	if (!actions)
		return 1;
	job->actions = find_noted(actions);
	return job->actions && is_as_noted(job->actions);
}

/* Makes a child that asks the engine. Returns its number, or 0 if libc must start the program. */
static int make_child(struct job *job) {
	FIND(int, clone, (int (*)(void *), void *, int, void *, ...))
	const long stack = SYSTEM(SYS_mmap, NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (!clone || (stack < 0 && stack > -4096))
		return 0;
	const int kept = errno;
	int child = clone(run_child, (char *)stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, job);
	errno = kept;
	SYSTEM(SYS_munmap, stack, STACK);
	/* If it was killed, the program may have run: then it is the result. */
	if (child > 0 && job->is_declined) {
		while (SYSTEM(SYS_wait4, child, NULL, __WALL, NULL) == -EINTR)
			;
		child = 0;
	}
	return child > 0 ? child : 0;
}

HIDDEN int wafpark_offer_spawn(const char *path, const void *actions, const void *attributes, char *const *argv, char *const *env,
                               uint32_t token) {
	const uint64_t all = ~(uint64_t)0;
	struct job job = {.path = path, .argv = argv, .env = env, .token = token};
	if (!wafpark_is_routed())
		return 0;
	uint64_t mask;
	/* As in libc, no handler of the program's may run in the child. */
	SYSTEM(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof mask);
	job.mask = mask;
	job.parent = (int)SYSTEM(SYS_getpid);
	const int child = read_actions(actions, &job) && read_attributes(attributes, &job) ? make_child(&job) : 0;
	SYSTEM(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
	return child;
}
