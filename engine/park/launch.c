/* Functions by which a process starts programs. They are recorded, and the programs get an environment with which they are observed, too.
 *
 * Children of vfork run in their parent's memory, so everything is put together on the stack. */
#define _GNU_SOURCE
#include "park.h"
#include "record.h"
#include "system.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define LONGEST_PATH 4096
#define MOST_VARIABLES 8192 /* with a larger environment, a program is not observed */
#define MOST_ARGUMENTS 65536

extern char **environ;

#define REAL(result, name, parameters)                                                                                       \
	static result(*real) parameters;                                                                                         \
	if (!real)                                                                                                               \
		*(void **)(&real) = wafpark_find(#name);

/* ---- the environment */

static size_t count_of(char *const *list) {
	size_t count = 0;
	while (list && list[count])
		count++;
	return count;
}

/* The value, if the entry is for this variable, otherwise NULL. `name` ends with an equals sign. */
static const char *value_in(const char *entry, const char *name) {
	while (*name && *entry == *name)
		entry++, name++;
	return *name ? NULL : entry;
}

/* Writes "LD_PRELOAD=ours:theirs". */
static int put_before(char *place, const char *theirs) {
	size_t size = 0;
	for (const char *at = wafpark_preload_entry; *at && size < LONGEST_PATH - 2; at++)
		place[size++] = *at;
	place[size++] = ':';
	while (*theirs && size < LONGEST_PATH - 1)
		place[size++] = *theirs++;
	place[size] = 0;
	return !*theirs;
}

/* The number of entries that an environment needs when it is passed on. */
#define PASSED_SIZE(env) count_of(env) > MOST_VARIABLES ? 1 : count_of(env) + 3

/* The entries that are added to it. */
struct passed {
	char preload[LONGEST_PATH], trace[LONGEST_PATH];
};

/* The start of a program: the token with which it must begin, and how it can be observed. */
struct start {
	uint32_t token;
	int is_observed;
	int is_static; /* the second witness observes it, if there is one */
	int is_wrapper;
};

/* Writes "WAFPARK_TRACE=arena:region:generation:token". */
static void put_trace(char *place, uint32_t token) {
	char digits[10];
	int count = 0;
	for (const char *at = wafpark_trace_entry; *at; at++)
		*place++ = *at;
	*place++ = ':';
	do
		digits[count++] = (char)('0' + token % 10);
	while (token /= 10);
	while (count)
		*place++ = digits[--count];
	*place = 0;
}

static int is_first(const char *library, const char *list) {
	while (*library && *library == *list)
		library++, list++;
	return !*library && (!*list || *list == ':' || *list == ' ');
}

/* Returns `env` with the entries that make a program observed, put together in `list` and `passed`. A program that cannot be observed gets
 * `env` unchanged, because it would find variables of ours. */
static char *const *pass_on(const struct start *start, char *const *env, char **list, struct passed *passed) {
	const char *ours = wafpark_preload_entry + sizeof "LD_PRELOAD=" - 1, *theirs;
	char *entry = wafpark_preload_entry;
	size_t count = 0;
	if (wafpark_watch != WAFPARK_WATCH_ON || !(start->is_observed || start->is_wrapper) || count_of(env) > MOST_VARIABLES)
		return env;
	for (; env && *env; env++) {
		if (start->is_observed && (theirs = value_in(*env, "LD_PRELOAD="))) {
			if (is_first(ours, theirs))
				entry = *env;
			else if (*theirs && put_before(passed->preload, theirs))
				entry = passed->preload;
		} else if (!value_in(*env, WAFPARK_TRACE "="))
			list[count++] = *env;
	}
	if (start->is_observed)
		list[count++] = entry;
	put_trace(passed->trace, start->token);
	list[count++] = passed->trace;
	list[count] = NULL;
	return list;
}

/* False if an entry of the environment must be removed. From a list of preloaded libraries, only ours is removed, in place. */
static int is_kept(char *entry) {
	const char *ours = wafpark_preload_entry + sizeof "LD_PRELOAD=" - 1;
	char *value = (char *)(uintptr_t)value_in(entry, "LD_PRELOAD=");
	if (value_in(entry, WAFPARK_TRACE "="))
		return 0;
	if (!value || !is_first(ours, value))
		return 1;
	char *rest = value;
	while (*rest && *rest != ':' && *rest != ' ')
		rest++;
	if (!*rest)
		return 0;
	while ((*value++ = *++rest))
		;
	return 1;
}

/* Restores the environment that the program would have without us. */
HIDDEN void wafpark_hide(char **env) {
	char **to = env;
	for (char **from = env; from && *from; from++)
		if (is_kept(*from))
			*to++ = *from;
	if (to)
		*to = NULL;
}

/* ---- looking along PATH */

static int is_program(const char *path) {
	struct stat status;
	long result = SYSTEM(SYS_faccessat, AT_FDCWD, path, X_OK);
	if (wafpark_watch)
		wafpark_note(WAFPARK_FIND, result, 0, AT_FDCWD, path);
	return result == 0 && SYSTEM(SYS_newfstatat, AT_FDCWD, path, &status, 0) == 0 && S_ISREG(status.st_mode);
}

static int is_path(const char *name) {
	while (*name && *name != '/')
		name++;
	return *name;
}

/* Records where libc will look for a program. Returns its path, or the name if it is in no folder. */
static const char *search_path(const char *name, char buffer[LONGEST_PATH]) {
	const char *at = "/bin:/usr/bin";
	if (is_path(name))
		return name;
	for (char **entry = environ; entry && *entry; entry++)
		if (value_in(*entry, "PATH=")) {
			at = value_in(*entry, "PATH=");
			break;
		}
	wafpark_note_word(WAFPARK_ASK, 0, "PATH");
	for (;; at++) {
		size_t size = 0;
		for (; *at && *at != ':' && size < LONGEST_PATH - 2; at++)
			buffer[size++] = *at;
		if (size)
			buffer[size++] = '/';
		for (const char *c = name; *c && size < LONGEST_PATH - 1; c++)
			buffer[size++] = *c;
		buffer[size] = 0;
		if (is_program(buffer))
			return buffer;
		if (*at != ':')
			return name;
	}
}

/* ---- exec */

static struct start note_start(int folder, const char *path) {
	struct start start = {0};
	if (wafpark_is_observed() && path) {
		const uint64_t identity = wafpark_inspect(folder, path, &start.is_static);
		start.token = wafpark_note_execute(folder, path, identity);
		start.is_wrapper = (start.is_static || !identity) && wafpark_is_wrapper(folder, path);
		start.is_observed = start.token && identity && !start.is_static && wafpark_is_library_there();
		start.is_static &= start.token && !start.is_wrapper;
	}
	return start;
}

static int note_refusal(long result, const char *path) {
	if (wafpark_watch)
		wafpark_note(WAFPARK_REFUSED, result, 0, AT_FDCWD, path);
	errno = (int)-result;
	return -1;
}

/* For a program that the second witness observes: what is executed in its place. */
struct witnessed {
	char path[64];
	struct passed passed;
};

/* The number of words before the arguments of the program: witness, "witness", path. */
#define WITNESS_WORDS 3
#define WITNESSED_SIZE(argv) count_of(argv) > MOST_ARGUMENTS ? 1 : count_of(argv) + WITNESS_WORDS + 1

/* The witness needs more address space than a small program. With a low limit, it could not begin. */
static int has_room(void) {
	uint64_t limit[2];
	return SYSTEM(SYS_prlimit64, 0, RLIMIT_AS, NULL, limit) == 0 && limit[0] >= WAFPARK_WITNESS_ROOM;
}

/* Whether the second witness can observe this program. If so, `words` becomes the command line to execute, and `list` its environment. */
static int find_witness(const struct start *start, const char *path, char *const *argv, char *const *env, char **words, char **list,
                        struct witnessed *witnessed) {
	/* Like our wrapper, it gets the place for its records, but not the library. */
	const struct start as_wrapper = {.token = start->token, .is_wrapper = 1};
	size_t count = WITNESS_WORDS;
	if (!start->is_static || !argv || !argv[0] || count_of(argv) > MOST_ARGUMENTS || !has_room() ||
	    !wafpark_find_witness(witnessed->path) || SYSTEM(SYS_faccessat, AT_FDCWD, path, X_OK) != 0 ||
	    pass_on(&as_wrapper, env, list, &witnessed->passed) == env)
		return 0;
	words[0] = witnessed->path;
	words[1] = (char *)(uintptr_t)"witness";
	words[2] = (char *)(uintptr_t)path;
	for (; *argv; argv++)
		words[count++] = *argv;
	words[count] = NULL;
	return 1;
}

/* Returns if the program cannot be started in this way. */
__attribute__((noinline)) static void execute_witnessed(const struct start *start, const char *path, char *const *argv,
                                                        char *const *env) {
	char *words[WITNESSED_SIZE(argv)], *list[PASSED_SIZE(env)];
	struct witnessed witnessed;
	if (find_witness(start, path, argv, env, words, list, &witnessed))
		SYSTEM(SYS_execve, witnessed.path, words, list);
}

__attribute__((noinline)) static int execute(const char *path, char *const *argv, char *const *env) {
	char *list[PASSED_SIZE(env)];
	struct passed passed;
	const struct start start = note_start(AT_FDCWD, path);
	wafpark_offer_exec(path, argv, env, start.token, 0);
	execute_witnessed(&start, path, argv, env);
	return note_refusal(SYSTEM(SYS_execve, path, argv, pass_on(&start, env, list, &passed)), path);
}

EXPORT int execve(const char *path, char *const argv[], char *const env[]) {
	return execute(path, argv, env);
}

EXPORT int execv(const char *path, char *const argv[]) {
	return execute(path, argv, environ);
}

/* The engine searches along PATH, as libc would. A program that the engine does not run is left to libc. */
static int execute_found(const char *name, char *const *argv, char *const *env) {
	REAL(int, execvpe, (const char *, char *const *, char *const *))
	char *list[PASSED_SIZE(env)], buffer[LONGEST_PATH];
	struct passed passed;
	struct start start = {0};
	const char *path = name;
	if (wafpark_watch == WAFPARK_WATCH_ON) {
		path = search_path(name, buffer);
		/* If it is not found here, the engine searches for it, too. */
		if (path == buffer || is_path(name))
			start = note_start(AT_FDCWD, path);
		else
			wafpark_note_execute(AT_FDCWD, path, 0);
	}
	wafpark_offer_exec(name, argv, env, start.token, 0);
	execute_witnessed(&start, path, argv, env);
	real(name, argv, pass_on(&start, env, list, &passed));
	return note_refusal(-errno, path);
}

EXPORT int execvp(const char *name, char *const argv[]) {
	return execute_found(name, argv, environ);
}

EXPORT int execvpe(const char *name, char *const argv[], char *const env[]) {
	return execute_found(name, argv, env);
}

static int fail_with_enosys(void) {
	errno = ENOSYS;
	return -1;
}

HIDDEN const char *wafpark_path_of_file(int file, char path[40]) {
	char digits[10], *at = path;
	int count = 0;
	for (const char *start = "/proc/self/fd/"; *start; start++)
		*at++ = *start;
	do
		digits[count++] = (char)('0' + file % 10);
	while (file /= 10);
	while (count)
		*at++ = digits[--count];
	*at = 0;
	return path;
}

EXPORT int fexecve(int file, char *const argv[], char *const env[]) {
	REAL(int, fexecve, (int, char *const *, char *const *))
	char *list[PASSED_SIZE(env)], path[40];
	struct passed passed;
	struct start start = {0};
	if (wafpark_runs_nothing())
		return fail_with_enosys();
	if (file >= 0)
		start = note_start(AT_FDCWD, wafpark_path_of_file(file, path));
	real(file, argv, pass_on(&start, env, list, &passed));
	return file < 0 ? -1 : note_refusal(-errno, path);
}

EXPORT int execveat(int folder, const char *name, char *const argv[], char *const env[], int flags) {
	char *list[PASSED_SIZE(env)], link[40];
	struct passed passed;
	const int is_file = (flags & AT_EMPTY_PATH) && folder >= 0 && !name[0];
	if (wafpark_runs_nothing())
		return fail_with_enosys();
	const char *path = is_file ? wafpark_path_of_file(folder, link) : name;
	const struct start start = note_start(is_file ? AT_FDCWD : folder, path);
	const long result = SYSTEM(SYS_execveat, folder, name, argv, pass_on(&start, env, list, &passed), flags);
	if (wafpark_watch)
		wafpark_note(WAFPARK_REFUSED, result, 0, AT_FDCWD, path);
	errno = (int)-result;
	return -1;
}

/* Collects the arguments of the functions that take them one by one. */
#define GATHER(first, argv)                                                                                                  \
	size_t count = 1;                                                                                                        \
	va_list list;                                                                                                            \
	va_start(list, first);                                                                                                   \
	while (count < MOST_ARGUMENTS && va_arg(list, char *))                                                                   \
		count++;                                                                                                             \
	va_end(list);                                                                                                            \
	char *argv[count + 1];                                                                                                   \
	argv[0] = (char *)(uintptr_t)first;                                                                                      \
	va_start(list, first);                                                                                                   \
	for (size_t i = 1; i <= count; i++)                                                                                      \
		argv[i] = va_arg(list, char *);

EXPORT int execl(const char *path, const char *first, ...) {
	GATHER(first, argv)
	va_end(list);
	return execute(path, argv, environ);
}

EXPORT int execlp(const char *name, const char *first, ...) {
	GATHER(first, argv)
	va_end(list);
	return execute_found(name, argv, environ);
}

EXPORT int execle(const char *path, const char *first, ...) {
	GATHER(first, argv)
	char *const *env = va_arg(list, char *const *);
	va_end(list);
	return execute(path, argv, env);
}

/* ---- children that libc makes */

typedef int spawn_function(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                           char *const *, char *const *);

/* Set if a child of posix_spawn changes its folder before it opens files. */
static int spawns_elsewhere;

/* The words of a call of posix_spawn or its relatives. */
struct spawning {
	int *child; /* its number, or a descriptor for it */
	const char *name;
	const posix_spawn_file_actions_t *actions;
	const posix_spawnattr_t *attributes;
	char *const *argv, *const *env;
};

/* Where libc will look for the program, and the engine would. */
static int is_found_alike(const char *name, char *const *env) {
	const char *ours = wafpark_find_value("PATH");
	if (is_path(name))
		return 1;
	for (; env && *env; env++) {
		const char *theirs = value_in(*env, "PATH=");
		if (theirs)
			return ours && strcmp(ours, theirs) == 0;
	}
	return !ours;
}

/* `real` gets `name`; `path` is where that leads. */
static int spawn(spawn_function *real, const struct spawning *of, const char *path, int is_number) {
	char *words[WITNESSED_SIZE(of->argv)], *list[PASSED_SIZE(of->env)];
	struct passed passed;
	struct witnessed witnessed;
	if (!real)
		return ENOSYS;
	if (wafpark_watch == WAFPARK_WATCH_ON && spawns_elsewhere && path[0] != '/')
		wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_FOLDER, "");
	const struct start start = note_start(AT_FDCWD, path);
	if (is_number && is_found_alike(of->name, of->env)) {
		const int child = wafpark_offer_spawn(of->name, of->actions, of->attributes, of->argv, of->env, start.token);
		if (child && of->child)
			*of->child = child;
		if (child)
			return 0;
	}
	if (wafpark_runs_nothing())
		return ENOSYS;
	if (find_witness(&start, path, of->argv, of->env, words, list, &witnessed) &&
	    real(of->child, witnessed.path, of->actions, of->attributes, words, list) == 0)
		return 0;
	int error = real(of->child, of->name, of->actions, of->attributes, of->argv, pass_on(&start, of->env, list, &passed));
	if (error && wafpark_watch)
		wafpark_note(WAFPARK_REFUSED, -error, 0, AT_FDCWD, path);
	return error;
}

static int spawn_found(spawn_function *real, const struct spawning *of, int is_number) {
	char buffer[LONGEST_PATH];
	return spawn(real, of, wafpark_watch == WAFPARK_WATCH_ON ? search_path(of->name, buffer) : of->name, is_number);
}

EXPORT int posix_spawn(pid_t *restrict child, const char *restrict path, const posix_spawn_file_actions_t *restrict actions,
                       const posix_spawnattr_t *restrict attributes, char *const argv[restrict], char *const env[restrict]) {
	REAL(int, posix_spawn, (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *))
	return spawn(real, &(struct spawning){child, path, actions, attributes, argv, env}, path, 1);
}

EXPORT int posix_spawnp(pid_t *restrict child, const char *restrict name, const posix_spawn_file_actions_t *restrict actions,
                        const posix_spawnattr_t *restrict attributes, char *const argv[restrict], char *const env[restrict]) {
	REAL(int, posix_spawnp, (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *))
	return spawn_found(real, &(struct spawning){child, name, actions, attributes, argv, env}, 1);
}

/* These two are in glibc from 2.39 on. They give a descriptor for the child, so a process that stands for it would not do. */
EXPORT int pidfd_spawn(int *restrict file, const char *restrict path, const posix_spawn_file_actions_t *restrict actions,
                       const posix_spawnattr_t *restrict attributes, char *const argv[restrict], char *const env[restrict]);
EXPORT int pidfd_spawn(int *restrict file, const char *restrict path, const posix_spawn_file_actions_t *restrict actions,
                       const posix_spawnattr_t *restrict attributes, char *const argv[restrict], char *const env[restrict]) {
	REAL(int, pidfd_spawn, (int *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *))
	return spawn(real, &(struct spawning){file, path, actions, attributes, argv, env}, path, 0);
}

EXPORT int pidfd_spawnp(int *restrict file, const char *restrict name, const posix_spawn_file_actions_t *restrict actions,
                        const posix_spawnattr_t *restrict attributes, char *const argv[restrict], char *const env[restrict]);
EXPORT int pidfd_spawnp(int *restrict file, const char *restrict name, const posix_spawn_file_actions_t *restrict actions,
                        const posix_spawnattr_t *restrict attributes, char *const argv[restrict], char *const env[restrict]) {
	REAL(int, pidfd_spawnp, (int *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *))
	return spawn_found(real, &(struct spawning){file, name, actions, attributes, argv, env}, 0);
}

static void note_folder_of_child(const char *path) {
	if (wafpark_watch)
		wafpark_note(WAFPARK_FIND, SYSTEM(SYS_faccessat, AT_FDCWD, path, F_OK), 0, AT_FDCWD, path);
	spawns_elsewhere = 1;
}

/* The names that end with _np are older. */
EXPORT int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t *restrict actions, const char *restrict path) {
	REAL(int, posix_spawn_file_actions_addchdir_np, (posix_spawn_file_actions_t *, const char *))
	note_folder_of_child(path);
	return real ? real(actions, path) : ENOSYS;
}

EXPORT int posix_spawn_file_actions_addchdir(posix_spawn_file_actions_t *restrict actions, const char *restrict path);
EXPORT int posix_spawn_file_actions_addchdir(posix_spawn_file_actions_t *restrict actions, const char *restrict path) {
	REAL(int, posix_spawn_file_actions_addchdir, (posix_spawn_file_actions_t *, const char *))
	note_folder_of_child(path);
	return real ? real(actions, path) : ENOSYS;
}

EXPORT int posix_spawn_file_actions_addfchdir_np(posix_spawn_file_actions_t *actions, int folder) {
	REAL(int, posix_spawn_file_actions_addfchdir_np, (posix_spawn_file_actions_t *, int))
	spawns_elsewhere = 1;
	return real ? real(actions, folder) : ENOSYS;
}

EXPORT int posix_spawn_file_actions_addfchdir(posix_spawn_file_actions_t *actions, int folder);
EXPORT int posix_spawn_file_actions_addfchdir(posix_spawn_file_actions_t *actions, int folder) {
	REAL(int, posix_spawn_file_actions_addfchdir, (posix_spawn_file_actions_t *, int))
	spawns_elsewhere = 1;
	return real ? real(actions, folder) : ENOSYS;
}

EXPORT int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *restrict actions, int number,
                                            const char *restrict path, int flags, mode_t mode) {
	REAL(int, posix_spawn_file_actions_addopen, (posix_spawn_file_actions_t *, int, const char *, int, mode_t))
	if (wafpark_watch && spawns_elsewhere && path[0] != '/')
		wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_FOLDER, "");
	else if (wafpark_watch)
		wafpark_note(WAFPARK_OPEN, 0, (uint32_t)flags, AT_FDCWD, path);
	return real(actions, number, path, flags, mode);
}

/* libc gives its own `environ` to the shell. So `environ` is replaced during the call. */
#define WITH_SHELL(call)                                                                                                     \
	char **kept = environ, *list[PASSED_SIZE(kept)];                                                                              \
	struct passed passed;                                                                                                    \
	const struct start start = note_start(AT_FDCWD, "/bin/sh");                                                              \
	environ = (char **)(uintptr_t)pass_on(&start, kept, list, &passed);                                                      \
	call;                                                                                                                    \
	if (environ == list)                                                                                                     \
		environ = kept;

EXPORT int system(const char *command) {
	REAL(int, system, (const char *))
	if (wafpark_runs_nothing())
		return fail_with_enosys();
	if (wafpark_watch != WAFPARK_WATCH_ON || !command)
		return real(command);
	WITH_SHELL(int status = real(command))
	return status;
}

EXPORT FILE *popen(const char *command, const char *mode) {
	REAL(FILE *, popen, (const char *, const char *))
	if (wafpark_runs_nothing())
		return fail_with_enosys(), NULL;
	if (wafpark_watch != WAFPARK_WATCH_ON)
		return real(command, mode);
	WITH_SHELL(FILE *pipe = real(command, mode))
	if (!pipe)
		note_refusal(-errno, "/bin/sh");
	return pipe;
}

/* ---- libraries */

/* Records a library under the name that the program uses: the loader may know the same file by another name. */
static void note_library(const char *path) {
	struct stat status;
	const long result = SYSTEM(SYS_newfstatat, AT_FDCWD, path, &status, 0);
	wafpark_note(result == 0 && S_ISREG(status.st_mode) ? WAFPARK_LOAD : WAFPARK_FIND, result, 0, AT_FDCWD, path);
}

/* libc looks at its caller's address. So this function ends with a tail call, and the loaded libraries are recorded later. */
EXPORT void *dlopen(const char *path, int flags) {
	REAL(void *, dlopen, (const char *, int))
	const int is_named = path && is_path(path);
	if (wafpark_watch && is_named)
		note_library(path);
	wafpark_expect_loads(is_named ? NULL : path);
	return real(path, flags);
}

/* A library may be unloaded before anything else is recorded. */
EXPORT int dlclose(void *library) {
	REAL(int, dlclose, (void *))
	wafpark_note_loads_left();
	return real ? real(library) : -1;
}

EXPORT void *dlmopen(Lmid_t space, const char *path, int flags) {
	REAL(void *, dlmopen, (Lmid_t, const char *, int))
	/* dl_iterate_phdr does not show other namespaces. */
	if (wafpark_watch)
		wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_CALL, "");
	return real(space, path, flags);
}

EXPORT void _exit(int status) {
	wafpark_note_loads_left();
	leave(status);
}

EXPORT void _Exit(int status) {
	_exit(status);
}

__attribute__((destructor)) static void note_last_loads(void) {
	wafpark_note_loads_left();
}
