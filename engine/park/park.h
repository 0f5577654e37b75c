/* What the engine and the library say to each other, and what the library's files share.
 *
 * Messages are single packets over a SOCK_SEQPACKET socket, in the machine's own byte order, since both ends are on one
 * machine and of one build. `engine/src/park/packet.rs` is the other side of this file. */
#ifndef WAFPARK_H
#define WAFPARK_H

#include <stddef.h>
#include <stdint.h>

#define WAFPARK_MAGIC 0x34504157u /* "WAP4": to be changed with any change of these structures */
#define WAFPARK_PACKET (192 << 10) /* the largest packet; a longer command is spawned */
#define WAFPARK_STRINGS (16 << 10) /* the most arguments and variables together */
#define WAFPARK_LIMITS 16
#define WAFPARK_PROCESSORS 128 /* bytes of the set, as in cpu_set_t */

/* This variable is set in the environment of a program that must park. */
#define WAFPARK_VARIABLE "WAFPARK"

/* Flags of a request. */
enum {
	WAFPARK_SESSION = 1, /* the command gets a session of its own */
	WAFPARK_JOIN = 2, /* the command joins the process group `group` */
	WAFPARK_SCORE = 8, /* its out-of-memory score is not the engine's */
	WAFPARK_ROUTE = 4, /* send its exec of other programs to the engine, at the address `route` */
	WAFPARK_RUN_NOTHING = 16, /* a program that the engine does not run for it is not run at all */
};

/* All that a command inherits, except its descriptors, which come as SCM_RIGHTS, and its strings, which follow. */
struct wafpark_context {
	uint64_t ignored, blocked; /* signals, one bit each */
	uint64_t limits[WAFPARK_LIMITS][2]; /* soft and hard */
	int32_t nice, policy, priority, io_priority;
	uint32_t umask;
	int32_t score; /* of the out-of-memory killer */
	uint8_t processors[WAFPARK_PROCESSORS];
};

/* The first packet to a program that is about to park. Its descriptors are the roster and, perhaps, the arena. The path of the arena
 * follows, with its zero byte. */
struct wafpark_welcome {
	uint32_t magic, roster; /* the roster's size in bytes */
	uint32_t arena; /* how many regions it has */
};

/* The engine, or a program that wants to exec, asks for a command. These strings follow, each with its zero byte: the path of the
 * program, the folder, the arguments, the environment, the address of the router (empty without WAFPARK_ROUTE). */
struct wafpark_request {
	uint32_t magic, size; /* size of the whole packet */
	uint32_t flags, entry; /* where the child notes its process in the roster */
	int32_t group, engine; /* the process group to join; the process that must be its parent */
	uint32_t log, generation; /* the region of the arena for its records; none if the generation is 0 */
	uint32_t token; /* of the exec by which it starts, or 0 */
	int32_t asker; /* the process that has recorded the exec by which it starts, or 0 */
	uint32_t path, folder, argv, argc, env, envc, route; /* sizes in bytes with the zeros, and counts */
	struct wafpark_context context;
};

/* The child answers with its process number when it is about to enter main, or with minus an errno when it will never do so: ESTALE if
 * one of its libraries is another file by now. */
struct wafpark_answer {
	uint32_t magic;
	int32_t pid;
};

/* The program is parked. The names of the variables that it read before main follow, each with its zero byte. */
struct wafpark_ready {
	uint32_t magic, size;
	uint32_t obstacle; /* enum wafpark_obstacle */
	uint32_t names; /* size in bytes */
	uint64_t environment; /* its digest, so that the engine sees whether the program has changed it */
};

/* Why a program must not be parked. */
enum wafpark_obstacle {
	WAFPARK_NONE,
	WAFPARK_MANY_VARIABLES, /* it reads more variables than can be noted */
	WAFPARK_LOCALE, /* it sets its locale before main */
	WAFPARK_FILES, /* it opens files before main */
	WAFPARK_PROCESS, /* it asks for its process number or folder before main */
	WAFPARK_ENVIRONMENT, /* it changes its environment before main */
	WAFPARK_THREAD, /* after a fork, its libc takes itself for the parked thread */
	WAFPARK_MANY_LIBRARIES, /* it has more libraries than can be checked for each command */
	WAFPARK_FORK, /* it cannot fork */
};

/* The engine answers a program that wants to exec: either it must do so itself, or this is the status of the command that ran for it. */
struct wafpark_routed {
	uint32_t magic, ran;
	int32_t status; /* as of waitpid */
};

/* The value of a ticket in the roster while a request is open. Child or engine: the one that changes it first decides. */
#define WAFPARK_ASKED (-1)

/* ---- within the library */

/* park.c: the environment as the kernel laid it out; the auxiliary vector follows it. */
extern char **wafpark_first_environment;

/* before.c: what happens before main. */
extern int wafpark_before_main; /* true until the program is parked */
void wafpark_see_obstacle(enum wafpark_obstacle what);
void wafpark_report_ready(int control);
void wafpark_note_names(void);

/* child.c: turns a fresh child into the command. */
struct wafpark_child {
	const struct wafpark_request *request;
	char *path, *folder, *route;
	char **argv, **env;
	int streams[3], control;
	volatile int32_t *roster;
	size_t roster_size;
};
void wafpark_end_with_engine(int engine);
void wafpark_adopt_command(const struct wafpark_child *child); /* returns as the command, or not at all */
void wafpark_answer(int control, int32_t pid);

/* thread.c: makes libc know that it is in another thread. The first function finds out how, and proves it. */
enum wafpark_obstacle wafpark_find_thread(void);
void wafpark_adopt_thread(void); /* in a fresh child */

/* memory.c: large pages for large memory. */
void wafpark_enlarge_pages(void);

/* route.c: sends what the command would exec to the engine. */
void wafpark_route(const char *address, const struct wafpark_request *request);
/* Whether the command may execute no program itself. */
int wafpark_runs_nothing(void);
/* Whether a file must stay, although the program must believe that it has removed it. */
int wafpark_keeps_file(const char *path);
/* Whether anything is sent to the engine. */
int wafpark_is_routed(void);
/* Offers an exec to the engine. Returns if the program must be executed here. `asker` is the process that has recorded the exec, or 0 for this
 * one. */
void wafpark_offer_exec(const char *path, char *const *argv, char *const *env, uint32_t token, int asker);

/* spawn.c: the same for what is started by posix_spawn. Returns the number of the child that stands for the program, or 0 if libc must start
 * it. `actions` and `attributes` are those of posix_spawn. */
int wafpark_offer_spawn(const char *path, const void *actions, const void *attributes, char *const *argv, char *const *env,
                        uint32_t token);

/* watch.c: looks up all functions to which it forwards, so that no child needs to. */
void wafpark_find_watched(void);

/* symbol.c: finds the definition of a function that ours replaces. */
void *wafpark_find(const char *name);

#endif
