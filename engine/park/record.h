/* What an observed process notes of itself, and where: `engine/src/observe/trace.rs` is the other side of this file.
 *
 *     arena = region*                one for each command that runs
 *     region = cursor record*        all processes of the command append to it at once
 *     record = struct wafpark_record, first text, second text, zeros up to a multiple of eight */
#ifndef WAFPARK_RECORD_H
#define WAFPARK_RECORD_H

#include <stdint.h>

#define WAFPARK_REGION (4u << 20) /* bytes; memory that is never written takes none */
#define WAFPARK_WITNESS_ROOM (1u << 30) /* bytes of addresses with which the second witness can begin */
#define WAFPARK_FULL 0xffffffffu /* a cursor's place when something could not be noted */

/* Set in the environment of a program that is to be observed: where the arena is, the region, its generation, and the token
 * of the exec by which the program starts, in decimal, with colons between them. */
#define WAFPARK_TRACE "WAFPARK_TRACE"

/* A region begins with the generation, in the higher half, and the place for the next record, in the lower. */
struct wafpark_log {
	uint64_t cursor;
	int32_t witness; /* the engine has it open under this number: see `engine/src/witness/`; -1 of none */
	int32_t unused;
};

struct wafpark_record {
	uint32_t commit; /* the generation, once all else is there */
	uint32_t size; /* of the whole record */
	uint32_t process;
	uint16_t kind; /* enum wafpark_kind */
	uint16_t error; /* an errno */
	uint32_t detail;
	uint32_t first, second; /* sizes of the texts */
	uint32_t token; /* EXECUTE: its own number; BEGIN: that of the exec by which the program started, 0 for the first */
	uint64_t identity; /* of what was found, or 0: of a file as wafpark_identity() makes it, of a text as wafpark_digest() */
};

enum wafpark_kind {
	WAFPARK_BEGIN = 1, /* program, folder; detail: the parent */
	WAFPARK_EXECUTE, /* path; it is about to be. The identity is that of the program that begins then: a script's interpreter */
	WAFPARK_REFUSED, /* path; it was not executed after all */
	WAFPARK_LOAD, /* path */
	WAFPARK_ENTER, /* path */
	WAFPARK_OPEN, /* path; detail: flags as of open */
	WAFPARK_FIND, /* path */
	WAFPARK_LOOK, /* path; detail: whether it follows links */
	WAFPARK_LINK, /* path */
	WAFPARK_RESOLVE, /* path */
	WAFPARK_LIST, /* path */
	WAFPARK_ASK, /* name */
	WAFPARK_LOCATE, /* detail: it does not ask itself; a path of its own is told as an absolute one */
	WAFPARK_TIME,
	WAFPARK_DATE,
	WAFPARK_RANDOM,
	WAFPARK_RENAME, /* from, to */
	WAFPARK_REMOVE, /* path */
	WAFPARK_MAKE, /* path */
	WAFPARK_BLIND, /* detail: enum wafpark_blindness */
	WAFPARK_MEASURE = 40, /* how long it runs, how busy the machine is */
	WAFPARK_NUMBER, /* of a process */
	/* the second witness has some of its own: `engine/src/observe/trace/record.rs` */
};

/* What cannot be observed. */
enum wafpark_blindness {
	WAFPARK_BLIND_FOLDER = 1, /* a path could not be told */
	WAFPARK_BLIND_BEFORE, /* it did something before it was parked */
	WAFPARK_BLIND_WALK, /* it lets libc walk through folders */
	WAFPARK_BLIND_CALL, /* it makes system calls of its own */
	WAFPARK_BLIND_TALK, /* it talks to other processes */
	WAFPARK_BLIND_LOADER, /* it is run by the loader, called as a program */
	WAFPARK_BLIND_PLACE, /* it changes what its paths mean */
	WAFPARK_BLIND_USERS, /* it asks who users or hosts are */
	WAFPARK_BLIND_SHARED, /* it shares memory with other processes */
	WAFPARK_BLIND_ATTRIBUTES, /* it uses attributes of files */
};

enum wafpark_watch {
	WAFPARK_WATCH_OFF,
	WAFPARK_WATCH_ON,
	WAFPARK_WATCH_UNKNOWN, /* nobody has looked into the environment yet */
	WAFPARK_WATCH_PARKING, /* for whom it is done is not known yet */
};

/* ---- record.c; nothing in it touches errno */

extern enum wafpark_watch wafpark_watch;

/* Has the environment decided whether this process is observed. */
void wafpark_start_watch(void);
int wafpark_is_observed(void);
/* A program that parks gets the arena, and from then on nothing is noted until it has become a command. */
void wafpark_take_arena(int file, uint32_t regions, const char *path);
struct wafpark_child;
void wafpark_watch_child(const struct wafpark_child *child);
/* The files of all that it has loaded, when it is parked: false if they are too many. And later, whether each is still the
 * same file: what is mapped was made of it. */
int wafpark_mark_libraries(void);
int wafpark_has_same_libraries(void);
/* Where a command notes what it does that is to run for this one, and by which exec it starts. */
struct wafpark_request;
void wafpark_tell_log(struct wafpark_request *request, uint32_t token);

/* `result`: as of a system call. What `folder` means is up to the *at functions. */
void wafpark_note(enum wafpark_kind kind, long result, uint32_t detail, int folder, const char *path);
/* The same, with what was found there; see `wafpark_record`. */
void wafpark_note_found(enum wafpark_kind kind, long result, uint32_t detail, int folder, const char *path, uint64_t identity);
/* A program is about to be executed: returns the token that it is to begin with, or 0 if nothing was noted. */
uint32_t wafpark_note_execute(int folder, const char *path, uint64_t identity);
/* Goes into a folder: what the system call returns. */
long wafpark_enter(const char *path);
void wafpark_note_two(enum wafpark_kind kind, long result, int from_folder, const char *from, int to_folder,
                      const char *to);
void wafpark_note_word(enum wafpark_kind kind, uint32_t detail, const char *word);
/* The path of an open file. */
void wafpark_note_file(enum wafpark_kind kind, long result, uint32_t detail, int file);
/* Libraries will have been loaded when something is noted next; the one of this name, if it is looked for in many folders. */
void wafpark_expect_loads(const char *name);
void wafpark_note_loads_left(void);
/* Of a variable as it is now, past what the program has of its own for that; NULL if it is not set. */
const char *wafpark_find_value(const char *name);

/* What programs that are executed must find in their environment: after the first comes a colon and the token. */
extern char wafpark_trace_entry[], wafpark_preload_entry[];
int wafpark_is_library_there(void);

/* Tells one file from another, as `Status::identity` of the engine does. */
uint64_t wafpark_identity(uint64_t device, uint64_t inode);
/* Of an open file; 0 if that cannot be told. */
uint64_t wafpark_identity_of_file(int file);
uint64_t wafpark_digest(const char *text, uint64_t size);

/* program.c: what the kernel will start for a path. 0 if that cannot be observed: of another kind of processor, or not to be
 * told. `is_static`: it can be observed by the second witness only. Interpreters of scripts are noted as loaded. */
uint64_t wafpark_inspect(int folder, const char *path, int *is_static);
int wafpark_is_wrapper(int folder, const char *path);

/* The path of the second witness; false if there is none. */
int wafpark_find_witness(char path[64]);

/* The path by which an open file can be opened again. */
const char *wafpark_path_of_file(int file, char path[40]);

/* locale.c: the file that `TZ` names, which libc is about to read. */
void wafpark_note_zone(void);

/* launch.c: takes that out of an environment again. */
void wafpark_hide(char **env);

#endif
