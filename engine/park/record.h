/* The records that an observed process makes of itself, and where it puts them. `engine/src/observe/trace.rs` is the other side of this file.
 *
 *     arena = region*                one for each command that runs
 *     region = cursor record*        all processes of the command append to it at once
 *     record = struct wafpark_record, first text, second text, zeros up to a multiple of eight */
#ifndef WAFPARK_RECORD_H
#define WAFPARK_RECORD_H

#include <stdint.h>

#define WAFPARK_REGION (16u << 20) /* bytes; pages that are never written take no memory */
#define WAFPARK_WITNESS_ROOM (1u << 30) /* bytes of address space that the second witness needs to begin */
#define WAFPARK_FULL 0xffffffffu /* the cursor's place when a record did not fit */

/* This variable is set in the environment of a program that must be observed. Its value has the path of the arena, and then in decimal the
 * region, its generation, and the token of the exec by which the program starts, with colons between them. */
#define WAFPARK_TRACE "WAFPARK_TRACE"

/* A region begins with its cursor: the generation in the higher half, the place for the next record in the lower half. */
struct wafpark_log {
	uint64_t cursor;
	int32_t witness; /* the descriptor under which the engine has the second witness open (`engine/src/witness/`), or -1 */
	int32_t ahead; /* seconds by which calendars are ahead, if the command only shows whether it tells the time; else 0 */
	int32_t guards; /* whether programs must show that they make no system calls by their own instructions */
	int32_t unused;
};

struct wafpark_record {
	uint32_t commit; /* the generation; written last, when the rest of the record is complete */
	uint32_t size; /* of the whole record */
	uint32_t process;
	uint16_t kind; /* enum wafpark_kind */
	uint16_t error; /* an errno */
	uint32_t detail;
	uint32_t first, second; /* sizes of the texts */
	uint32_t token; /* EXECUTE: its own token; BEGIN: the token of the exec by which the program started, 0 for the first program */
	uint64_t identity; /* of what was found, or 0: wafpark_identity() of a file, wafpark_digest() of a text */
};

enum wafpark_kind {
	WAFPARK_BEGIN = 1, /* program, folder; detail: the parent */
	WAFPARK_EXECUTE, /* path, before the exec. The identity is that of the program that will begin: for a script, its interpreter */
	WAFPARK_REFUSED, /* path; the exec has failed */
	WAFPARK_LOAD, /* path */
	WAFPARK_ENTER, /* path */
	WAFPARK_OPEN, /* path; detail: flags as of open */
	WAFPARK_FIND, /* path */
	WAFPARK_LOOK, /* path; detail: whether it follows links */
	WAFPARK_LINK, /* path */
	WAFPARK_RESOLVE, /* path */
	WAFPARK_LIST, /* path */
	WAFPARK_ASK, /* name */
	WAFPARK_LOCATE, /* the command's folder counts. detail: 1 if the program did not ask for it, but the library made a path absolute */
	WAFPARK_TIME,
	WAFPARK_DATE,
	WAFPARK_RANDOM,
	WAFPARK_RENAME, /* from, to */
	WAFPARK_REMOVE, /* path */
	WAFPARK_MAKE, /* path; detail: whether it is a folder */
	WAFPARK_BLIND, /* detail: enum wafpark_blindness */
	WAFPARK_MEASURE = 40, /* how long it runs, how busy the machine is */
	WAFPARK_NUMBER, /* of a process */
	WAFPARK_LISTED = 50, /* a folder was read to its end: its identity and the digest of the names, as hexadecimal numbers with a blank between them */
	WAFPARK_CRATE, /* of a folder that rustc reads: the identity of the folder, a blank, and a name that may be a crate's */
	WAFPARK_GUARDED, /* from now on, a system call that does not come from libc is noticed */
	/* the second witness has further kinds: `engine/src/observe/trace/record.rs` */
};

/* Reasons why a command cannot be observed completely. */
enum wafpark_blindness {
	WAFPARK_BLIND_FOLDER = 1, /* a path could not be found out */
	WAFPARK_BLIND_BEFORE, /* it did something before it was parked */
	WAFPARK_BLIND_WALK, /* it lets libc walk through folders */
	WAFPARK_BLIND_CALL, /* it makes system calls of its own */
	WAFPARK_BLIND_TALK, /* it talks to other processes */
	WAFPARK_BLIND_LOADER, /* it is run by the loader, called as a program */
	WAFPARK_BLIND_PLACE, /* it changes the meaning of its paths, for example by chroot */
	WAFPARK_BLIND_USERS, /* it asks who users or hosts are */
	WAFPARK_BLIND_SHARED, /* it shares memory with other processes */
	WAFPARK_BLIND_ATTRIBUTES, /* it uses attributes of files */
};

enum wafpark_watch {
	WAFPARK_WATCH_OFF,
	WAFPARK_WATCH_ON,
	WAFPARK_WATCH_UNKNOWN, /* the environment has not been read yet */
	WAFPARK_WATCH_PARKING, /* the program parks; its command is not known yet */
};

/* ---- record.c; no function in it changes errno */

extern enum wafpark_watch wafpark_watch;

/* The program is rustc, which looks for crates in the folders that it lists. */
extern int wafpark_finds_crates;

/* Reads in the environment whether this process is observed. */
void wafpark_start_watch(void);
int wafpark_is_observed(void);
/* By how many seconds the calendar of this process is ahead. */
int32_t wafpark_ahead(void);
/* Maps the arena in a program that parks. Nothing is recorded until a child is a command. */
void wafpark_take_arena(int file, uint32_t regions, const char *path);
struct wafpark_child;
void wafpark_watch_child(const struct wafpark_child *child);
/* The first function keeps the state of the files of all loaded libraries when a program parks; it returns false if there are too many. The
 * second one says, in a child, whether each is still the same file, so that what is mapped is still its content. */
int wafpark_mark_libraries(void);
int wafpark_has_same_libraries(void);
/* Writes into a request where the command that runs for this process puts its records, and by which exec it starts. */
struct wafpark_request;
void wafpark_tell_log(struct wafpark_request *request, uint32_t token);

/* `result` is like that of a system call. `folder` means the same as in the *at functions. */
void wafpark_note(enum wafpark_kind kind, long result, uint32_t detail, int folder, const char *path);
/* The same, with the identity of what was found there; see `wafpark_record`. */
void wafpark_note_found(enum wafpark_kind kind, long result, uint32_t detail, int folder, const char *path, uint64_t identity);
/* A program is about to be executed. Returns the token with which it must begin, or 0 if nothing was recorded. */
uint32_t wafpark_note_execute(int folder, const char *path, uint64_t identity);
/* Changes the folder. Returns what the system call returns. */
long wafpark_enter(const char *path);
void wafpark_note_two(enum wafpark_kind kind, long result, int from_folder, const char *from, int to_folder,
                      const char *to);
void wafpark_note_word(enum wafpark_kind kind, uint32_t detail, const char *word);
/* The path of an open file. */
void wafpark_note_file(enum wafpark_kind kind, long result, uint32_t detail, int file);
/* Libraries may be loaded now; they are recorded before the next record. `name` is one that is searched in many folders, or NULL. */
void wafpark_expect_loads(const char *name);
void wafpark_note_loads_left(void);
/* The value of a variable in `environ`, without calling a getenv of the program's own. NULL if it is not set. */
const char *wafpark_find_value(const char *name);

/* Entries for the environment of programs that are executed. A colon and the token follow the first one. */
extern char wafpark_trace_entry[], wafpark_preload_entry[];
int wafpark_is_library_there(void);

/* A number that differs between files, as `Status::identity` of the engine makes it. */
uint64_t wafpark_identity(uint64_t device, uint64_t inode);
/* The same for an open file; 0 if it cannot be found out. */
uint64_t wafpark_identity_of_file(int file);
uint64_t wafpark_digest(const char *text, uint64_t size);

/* program.c: the identity of the program that the kernel will start for a path. 0 if it cannot be observed: it is for another kind of
 * processor, or cannot be read. `is_static`: only the second witness can observe it. Interpreters of scripts are recorded as loaded. */
uint64_t wafpark_inspect(int folder, const char *path, int *is_static);
int wafpark_is_wrapper(int folder, const char *path);

/* Writes the path of the second witness; false if there is none. */
int wafpark_find_witness(char path[64]);

/* What follows `start` at the beginning of a path; NULL if it begins otherwise. */
const char *wafpark_after(const char *path, const char *start);

/* The path by which an open file can be opened again. */
const char *wafpark_path_of_file(int file, char path[40]);

/* What the kernel tells each program, by the number of `getauxval`; 0 if it does not. */
unsigned long wafpark_ask_kernel(unsigned long what);

/* guard.c: from now on, a system call that does not come from libc is noticed. */
void wafpark_guard(void);
/* A thread begins that is not guarded, or the guard is taken away. */
void wafpark_leave_guard(void);

/* locale.c: records the file that `TZ` names, which libc is about to read. */
void wafpark_note_zone(void);

/* launch.c: removes our entries from an environment. */
void wafpark_hide(char **env);

#endif
