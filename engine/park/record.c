/* Records what an observed process does, in memory that it shares with the engine.
 *
 * A record is appended in two steps, so that all processes and threads of a command can do so at once. First the cursor is moved by compare
 * and exchange, which fails if the region belongs to another command by now. The first word of the record is written last. If a process is
 * killed between these steps, it leaves a gap, which the engine notices. Paths are recorded as they were given, if the engine knows the
 * folder of the process. Otherwise they are made absolute here. */
#define _GNU_SOURCE
#include "record.h"
#include "park.h"
#include "system.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define LONGEST_PATH 4096
#define MARKS 512 /* the most libraries that a parked program may have */

extern char **environ;

HIDDEN enum wafpark_watch wafpark_watch = WAFPARK_WATCH_UNKNOWN;
HIDDEN int wafpark_finds_crates;
HIDDEN char wafpark_trace_entry[LONGEST_PATH], wafpark_preload_entry[LONGEST_PATH];

static struct wafpark_log *arena_log;
static uint32_t region, generation;
/* The arena of a parked program. `end` is the place in `wafpark_trace_entry` where region and generation follow. */
static struct {
	char *place, *end;
	size_t size;
} arena;
static int process_with_known_folder; /* the process whose folder the engine knows; its forks are not meant */
static int expects_loads, acted_before_parking;
static uint64_t noted_once;
static unsigned known_objects;
static char expected_library[256];
static uint64_t library_identity;

/* A text of a record: one part, or two parts with a slash between them. */
struct text {
	const char *head, *tail;
	uint32_t head_size, tail_size;
};

static uint32_t length_of(const char *text) {
	uint32_t length = 0;
	while (text[length])
		length++;
	return length;
}

static uint32_t size_of(const struct text *text) {
	return text->head_size + (text->head_size && text->tail_size) + text->tail_size;
}

static char *put_bytes(char *to, const char *from, uint32_t size) {
	for (uint32_t i = 0; i < size; i++)
		to[i] = from[i];
	return to + size;
}

static char *put_text(char *to, const struct text *text) {
	to = put_bytes(to, text->head, text->head_size);
	if (text->head_size && text->tail_size)
		*to++ = '/';
	return put_bytes(to, text->tail, text->tail_size);
}

/* ---- appending */

/* Reserves room for a record. NULL if the region is full, or no longer ours. */
static struct wafpark_record *make_room(uint32_t size) {
	uint64_t now = __atomic_load_n(&arena_log->cursor, __ATOMIC_RELAXED), next;
	uint32_t place;
	do {
		place = (uint32_t)now;
		if (now >> 32 != generation || place > WAFPARK_REGION)
			return NULL;
		next = size > WAFPARK_REGION - place ? WAFPARK_FULL : place + size;
	} while (!__atomic_compare_exchange_n(&arena_log->cursor, &now, (uint64_t)generation << 32 | next, 0, __ATOMIC_ACQ_REL,
	                                      __ATOMIC_RELAXED));
	return next == WAFPARK_FULL ? NULL : (void *)((char *)arena_log + place);
}

/* The contents of a record without its texts. */
struct note {
	enum wafpark_kind kind;
	long result;
	uint32_t detail, token;
	uint64_t identity;
};

/* Returns the record's place in the region, or 0. The token of an exec is this place in units of eight bytes. */
static uint32_t append_note(const struct note *note, const struct text *first, const struct text *second) {
	uint32_t first_size = size_of(first), second_size = second ? size_of(second) : 0;
	uint32_t size = ((uint32_t)sizeof(struct wafpark_record) + first_size + second_size + 7) & ~7u;
	struct wafpark_record *record = make_room(size);
	if (!record)
		return 0;
	const uint32_t place = (uint32_t)((char *)record - (char *)arena_log);
	record->size = size;
	record->process = (uint32_t)SYSTEM(SYS_getpid);
	record->kind = (uint16_t)note->kind;
	record->error = note->result < 0 && note->result > -4096 ? (uint16_t)-note->result : 0;
	record->detail = note->detail;
	record->token = note->kind == WAFPARK_EXECUTE ? place / 8 : note->token;
	record->identity = note->identity;
	record->first = first_size;
	record->second = second_size;
	char *at = put_text((char *)(record + 1), first);
	if (second)
		put_text(at, second);
	__atomic_store_n(&record->commit, generation, __ATOMIC_RELEASE);
	return place;
}

static void append(enum wafpark_kind kind, long result, uint32_t detail, const struct text *first, const struct text *second) {
	append_note(&(struct note){.kind = kind, .result = result, .detail = detail}, first, second);
}

/* ---- telling files and texts apart */

HIDDEN uint64_t wafpark_identity(uint64_t device, uint64_t inode) {
	const uint64_t mixed = inode * 0x9e3779b97f4a7c15u ^ device * 0xc2b2ae3d27d4eb4fu;
	return mixed ? mixed : 1;
}

HIDDEN uint64_t wafpark_identity_of_file(int file) {
	struct stat status;
	return SYSTEM(SYS_newfstatat, file, "", &status, AT_EMPTY_PATH) == 0 ? wafpark_identity(status.st_dev, status.st_ino) : 0;
}

HIDDEN uint64_t wafpark_digest(const char *text, uint64_t size) {
	uint64_t digest = 0xcbf29ce484222325u; /* FNV-1a */
	for (uint64_t i = 0; i < size; i++)
		digest = (digest ^ (unsigned char)text[i]) * 0x100000001b3u;
	return digest ? digest : 1;
}

static uint64_t identity_of_path(const char *path) {
	struct stat status;
	return SYSTEM(SYS_newfstatat, AT_FDCWD, path, &status, 0) == 0 ? wafpark_identity(status.st_dev, status.st_ino) : 0;
}

/* ---- paths */

static char *put_number(char *to, uint64_t number) {
	char digits[20];
	int count = 0;
	do
		digits[count++] = (char)('0' + number % 10);
	while (number /= 10);
	while (count)
		*to++ = digits[--count];
	return to;
}

/* Writes the path of an open file. Returns its size, or an error. */
static long read_file(int file, char *buffer) {
	char link[40];
	char *end = put_number(put_bytes(link, "/proc/self/fd/", 14), (uint32_t)file);
	*end = 0;
	return SYSTEM(SYS_readlinkat, AT_FDCWD, link, buffer, LONGEST_PATH);
}

/* A path that the library makes absolute is right for this folder only. So the folder counts for the command. */
static void note_folder_counts(void) {
	const struct text none = {0};
	append(WAFPARK_LOCATE, 0, 1, &none, NULL);
}

/* Writes the folder to which a relative path refers into the head of a text. The head stays empty if the engine knows the folder. */
static int find_folder(int folder, struct text *text, char *buffer) {
	long size;
	if (!text->tail_size || text->tail[0] == '/')
		return 1;
	if (folder == AT_FDCWD) {
		if ((int)SYSTEM(SYS_getpid) == process_with_known_folder)
			return 1;
		size = SYSTEM(SYS_getcwd, buffer, LONGEST_PATH) - 1;
	} else
		size = read_file(folder, buffer);
	if (size <= 0 || size >= LONGEST_PATH || buffer[0] != '/')
		return 0;
	text->head = buffer;
	text->head_size = (uint32_t)size;
	note_folder_counts();
	return 1;
}

static struct text text_of(const char *words) {
	return (struct text){NULL, words, 0, length_of(words)};
}

static void note_blindness(enum wafpark_blindness why) {
	const struct text none = {0};
	append(WAFPARK_BLIND, 0, why, &none, NULL);
}

__attribute__((noinline)) static uint32_t note_relative(const struct note *note, int folder, struct text *path) {
	char buffer[LONGEST_PATH];
	if (find_folder(folder, path, buffer))
		return append_note(note, path, NULL);
	if (note->result >= 0)
		note_blindness(WAFPARK_BLIND_FOLDER);
	return 0;
}

/* ---- names that the kernel resolves differently for each process */

HIDDEN const char *wafpark_after(const char *path, const char *start) {
	while (*start && *path == *start)
		path++, start++;
	return *start ? NULL : path;
}

static const char *after_number(const char *path) {
	const char *at = path;
	while (*at >= '0' && *at <= '9')
		at++;
	return at == path ? NULL : at;
}

static int is_end(const char *at) {
	return at && (!*at || *at == '/');
}

/* The end of the part of a path that the kernel resolves by a process's own state: an open file, its folder, its root. NULL for other paths. */
static const char *end_of_state(const char *path) {
	const char *at, *rest;
	if ((at = wafpark_after(path, "/dev/fd/")))
		return is_end(at = after_number(at)) ? at : NULL;
	if ((is_end(at = wafpark_after(path, "/dev/stdin"))) || (is_end(at = wafpark_after(path, "/dev/stdout"))) ||
	    (is_end(at = wafpark_after(path, "/dev/stderr"))))
		return at;
	if (!(at = wafpark_after(path, "/proc/")))
		return NULL;
	rest = wafpark_after(at, "self/");
	if (!rest)
		rest = wafpark_after(at, "thread-self/");
	if (!rest && (rest = after_number(at)))
		rest = wafpark_after(rest, "/");
	if (!rest)
		return NULL;
	if ((at = wafpark_after(rest, "task/")) && (at = after_number(at)) && (at = wafpark_after(at, "/")))
		rest = at;
	if ((at = wafpark_after(rest, "fd/")))
		return is_end(at = after_number(at)) ? at : NULL;
	if (is_end(at = wafpark_after(rest, "cwd")) || is_end(at = wafpark_after(rest, "root")))
		return at;
	return NULL;
}

/* If a path goes through a process's state, writes the path of the file itself into `buffer`. Returns NULL for other paths, and if the open
 * file has no path: a pipe, a socket. */
__attribute__((noinline)) static const char *follow_state(const char *path, char buffer[LONGEST_PATH]) {
	char link[64];
	const char *end = end_of_state(path);
	if (!end || (size_t)(end - path) >= sizeof link)
		return NULL;
	*put_bytes(link, path, (uint32_t)(end - path)) = 0;
	/* `/dev/fd` and `/dev/stdin` are links to links. */
	const char *number = wafpark_after(path, "/dev/fd/");
	if (wafpark_after(path, "/dev/std"))
		put_bytes(link, path[8] == 'i' ? "/proc/self/fd/0" : path[8] == 'o' ? "/proc/self/fd/1" : "/proc/self/fd/2", 16);
	else if (number && end - number < 20)
		*put_bytes(put_bytes(link, "/proc/self/fd/", 14), number, (uint32_t)(end - number)) = 0;
	const uint32_t rest = length_of(end);
	const long size = SYSTEM(SYS_readlinkat, AT_FDCWD, link, buffer, LONGEST_PATH);
	if (size <= 0 || (uint64_t)size + rest >= LONGEST_PATH || buffer[0] != '/')
		return NULL;
	put_bytes(buffer + size, end, rest + 1);
	return buffer;
}

/* ---- what the other files call */

static void note_loads(void);

static int is_watched(void) {
	if (wafpark_watch == WAFPARK_WATCH_UNKNOWN)
		wafpark_start_watch();
	if (wafpark_watch == WAFPARK_WATCH_PARKING)
		acted_before_parking = 1;
	if (wafpark_watch == WAFPARK_WATCH_ON && expects_loads)
		note_loads();
	return wafpark_watch == WAFPARK_WATCH_ON;
}

/* A path that only this process can follow is recorded as the path to which it leads. A program that reads such a link gets an absolute path, so
 * the command's folder counts. */
__attribute__((noinline)) static uint32_t note_state(const struct note *note, const char *path) {
	char buffer[LONGEST_PATH];
	const char *real = follow_state(path, buffer);
	const int reads_link = note->kind == WAFPARK_LINK || (note->kind == WAFPARK_LOOK && !note->detail) || note->kind == WAFPARK_RESOLVE;
	if (real && reads_link) {
		const struct text none = {0};
		append(WAFPARK_LOCATE, 0, 0, &none, NULL);
	}
	if (real && !(reads_link && !*end_of_state(path))) {
		note_folder_counts();
		path = real;
	}
	const struct text text = text_of(path);
	return append_note(note, &text, NULL);
}

static uint32_t note_path(const struct note *note, int folder, const char *path) {
	if (!path || note->result == -14 /* EFAULT: there is nothing to read */ || !is_watched())
		return 0;
	/* Interpreters use randomness and clocks before they open their first file. Later uses are recorded once more. */
	if (note->kind == WAFPARK_OPEN && note->result >= 0)
		noted_once = 0;
	struct text text = text_of(path);
	if (path[0] != '/')
		return note_relative(note, folder, &text);
	if (end_of_state(path))
		return note_state(note, path);
	return append_note(note, &text, NULL);
}

HIDDEN void wafpark_note(enum wafpark_kind kind, long result, uint32_t detail, int folder, const char *path) {
	note_path(&(struct note){.kind = kind, .result = result, .detail = detail}, folder, path);
}

HIDDEN void wafpark_note_found(enum wafpark_kind kind, long result, uint32_t detail, int folder, const char *path, uint64_t identity) {
	note_path(&(struct note){.kind = kind, .result = result, .detail = detail, .identity = identity}, folder, path);
}

HIDDEN uint32_t wafpark_note_execute(int folder, const char *path, uint64_t identity) {
	return note_path(&(struct note){.kind = WAFPARK_EXECUTE, .identity = identity}, folder, path) / 8;
}

/* For a fork, the kernel names the folder. It must be asked before the change of folder, because a relative path refers to the old one. */
HIDDEN long wafpark_enter(const char *path) {
	char buffer[LONGEST_PATH];
	struct text text = {0};
	int is_told = 0;
	if (path && path[0] && wafpark_watch && is_watched()) {
		text = text_of(path);
		is_told = end_of_state(path) ? 0 : find_folder(AT_FDCWD, &text, buffer);
	}
	const long result = SYSTEM(SYS_chdir, path);
	if (is_told)
		append(WAFPARK_ENTER, result, 0, &text, NULL);
	else if (wafpark_watch && result == 0 && path[0] == '/')
		wafpark_note(WAFPARK_ENTER, 0, 0, AT_FDCWD, path);
	else if (wafpark_watch == WAFPARK_WATCH_ON && result == 0)
		note_blindness(WAFPARK_BLIND_FOLDER);
	return result;
}

HIDDEN void wafpark_note_two(enum wafpark_kind kind, long result, int from_folder, const char *from, int to_folder,
                             const char *to) {
	char from_buffer[LONGEST_PATH], to_buffer[LONGEST_PATH];
	if (!from || !to || result == -14 || !is_watched())
		return;
	struct text first = text_of(from), second = text_of(to);
	if (find_folder(from_folder, &first, from_buffer) && find_folder(to_folder, &second, to_buffer))
		append(kind, result, 0, &first, &second);
	else if (result >= 0)
		note_blindness(WAFPARK_BLIND_FOLDER);
}

/* Kinds that give no new information the second time are recorded once. */
HIDDEN void wafpark_note_word(enum wafpark_kind kind, uint32_t detail, const char *word) {
	const uint64_t bit = 1ull << kind, once = 1ull << WAFPARK_TIME | 1ull << WAFPARK_DATE | 1ull << WAFPARK_RANDOM
	                                          | 1ull << WAFPARK_MEASURE | 1ull << WAFPARK_NUMBER;
	wafpark_start_watch();
	if (kind == WAFPARK_ASK && wafpark_watch == WAFPARK_WATCH_PARKING)
		return; /* before.c notes the name */
	if ((noted_once & bit) || !is_watched())
		return;
	noted_once |= bit & once;
	const struct text text = text_of(word);
	append(kind, 0, detail, &text, NULL);
}

HIDDEN void wafpark_note_file(enum wafpark_kind kind, long result, uint32_t detail, int file) {
	char buffer[LONGEST_PATH];
	if (result == -9 /* EBADF */ || !is_watched())
		return;
	long size = read_file(file, buffer);
	const struct text path = {NULL, buffer, 0, (uint32_t)size};
	if (size > 0 && size < LONGEST_PATH && buffer[0] == '/') {
		note_folder_counts();
		append_note(&(struct note){.kind = kind, .result = result, .detail = detail, .identity = wafpark_identity_of_file(file)}, &path,
		            NULL);
	} else
		note_blindness(WAFPARK_BLIND_FOLDER);
}

/* ---- libraries */

/* A value of the auxiliary vector, which the kernel passes to a program at its start. */
HIDDEN unsigned long wafpark_ask_kernel(unsigned long what) {
	static unsigned long (*ask)(unsigned long);
	if (!ask)
		*(void **)(&ask) = wafpark_find("getauxval");
	return ask ? ask(what) : 0;
}

/* The kernel's own object has a name and no file. It is known by its address: a library may have the same name. */
static int is_of_kernel(const struct dl_phdr_info *object) {
	static uintptr_t place;
	if (!place && !(place = (uintptr_t)wafpark_ask_kernel(AT_SYSINFO_EHDR)))
		place = 1;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];
		if (part->p_type == PT_LOAD && place - (object->dlpi_addr + part->p_vaddr) < part->p_memsz)
			return 1;
	}
	return 0;
}

/* The state of the files of a parked program's libraries when it was parked, in the order in which they were loaded, and then of the
 * loader's own lists. */
static struct mark {
	uint64_t identity, digest;
} marks[MARKS];
static unsigned marked, marks_noted;
static const char *const loader_lists[] = {"/etc/ld.so.cache", "/etc/ld.so.preload"};
enum { LISTS = sizeof loader_lists / sizeof *loader_lists };

static struct mark mark_of(const char *path) {
	struct stat status;
	if (SYSTEM(SYS_newfstatat, AT_FDCWD, path, &status, 0) != 0)
		return (struct mark){0};
	const uint64_t state[] = {(uint64_t)status.st_size, (uint64_t)status.st_mtim.tv_sec, (uint64_t)status.st_mtim.tv_nsec,
	                          (uint64_t)status.st_ctim.tv_sec, (uint64_t)status.st_ctim.tv_nsec};
	return (struct mark){wafpark_identity(status.st_dev, status.st_ino), wafpark_digest((const char *)state, sizeof state)};
}

static int has_file(const struct dl_phdr_info *object) {
	return object->dlpi_name && object->dlpi_name[0] && !is_of_kernel(object);
}

/* Called for each file in turn, until it returns false. */
typedef int mark_function(unsigned at, struct mark mark);

static int set_mark(unsigned at, struct mark mark) {
	if (at >= MARKS)
		return 0;
	marks[at] = mark;
	marked = at + 1;
	return 1;
}

static int is_as_marked(unsigned at, struct mark mark) {
	return at < marked && marks[at].identity == mark.identity && marks[at].digest == mark.digest;
}

struct walk {
	mark_function *visit;
	unsigned at;
};

static int walk_object(struct dl_phdr_info *object, size_t size, void *data) {
	struct walk *walk = data;
	(void)size;
	return has_file(object) && !walk->visit(walk->at++, mark_of(object->dlpi_name));
}

/* Uses the paths under which the loader has found the libraries, so that a link that now leads elsewhere is noticed, too. */
static int walk_libraries(mark_function *visit) {
	struct walk walk = {visit, 0};
	if (dl_iterate_phdr(walk_object, &walk))
		return 0;
	for (unsigned i = 0; i < LISTS; i++)
		if (!visit(walk.at++, mark_of(loader_lists[i])))
			return 0;
	return 1;
}

HIDDEN int wafpark_mark_libraries(void) {
	return walk_libraries(set_mark);
}

HIDDEN int wafpark_has_same_libraries(void) {
	return walk_libraries(is_as_marked);
}

/* The mapped file counts: since the program was parked, the path may have come to mean another file. Libraries that are loaded later have no
 * mark: the last marks are those of the lists. */
static uint64_t identity_of_object(const struct dl_phdr_info *object) {
	return marks_noted + LISTS < marked ? marks[marks_noted++].identity : identity_of_path(object->dlpi_name);
}

static int note_object(struct dl_phdr_info *object, size_t size, void *data) {
	unsigned *left = data;
	(void)size;
	if (*left && !object->dlpi_subs) {
		--*left;
		return 0;
	}
	known_objects++;
	if (has_file(object)) {
		struct text path = text_of(object->dlpi_name);
		const struct note note = {.kind = WAFPARK_LOAD, .identity = identity_of_object(object)};
		if (path.tail[0] == '/')
			append_note(&note, &path, NULL);
		else
			note_relative(&note, AT_FDCWD, &path);
	}
	return 0;
}

/* Whether the last part of a path is this name. */
static int ends_with_name(const char *path, const char *name) {
	const uint32_t size = length_of(path), wanted = length_of(name);
	if (size < wanted || (size > wanted && path[size - wanted - 1] != '/'))
		return 0;
	for (uint32_t i = 0; i < wanted; i++)
		if (path[size - wanted + i] != name[i])
			return 0;
	return 1;
}

static int is_expected(struct dl_phdr_info *object, size_t size, void *data) {
	(void)size;
	return object->dlpi_name && ends_with_name(object->dlpi_name, data);
}

/* ---- where the loader looks for libraries: a library that newly appears there would be loaded in the place of another one */

/* A folder in which the loader searches. Only libraries after the first `known` objects are new, and may have been searched there. */
struct search {
	const char *folder;
	uint32_t size;
	unsigned known;
};

/* Subfolders for certain kinds of processors. glibc from 2.37 on uses the first one only. */
static const char *const kinds[] = {"glibc-hwcaps", "tls", "haswell", "x86_64", "atomics"};

static int is_same_text(const char *one, const char *other) {
	while (*one && *one == *other)
		one++, other++;
	return *one == *other;
}

/* The subfolders of the first one. */
static const char *const levels[] = {"x86-64-v4", "x86-64-v3", "x86-64-v2"};

/* Looks for a name in a folder and records that, unless it is the library that was found. Returns whether it is there. */
static int note_candidate(const struct search *search, const char *name, const char *found) {
	char path[LONGEST_PATH];
	if (search->size + length_of(name) + 2 > LONGEST_PATH) {
		note_blindness(WAFPARK_BLIND_WALK);
		return 0;
	}
	char *at = put_bytes(path, search->folder, search->size);
	if (search->size && at[-1] != '/')
		*at++ = '/';
	put_bytes(at, name, length_of(name) + 1);
	if (is_same_text(path, found))
		return 1;
	const long result = SYSTEM(SYS_faccessat, AT_FDCWD, path, F_OK);
	wafpark_note(WAFPARK_FIND, result, 0, AT_FDCWD, path);
	return result == 0;
}

static const char *last_part(const char *path) {
	const char *last = path;
	for (; *path; path++)
		if (*path == '/')
			last = path + 1;
	return last;
}

static int note_in_folder(struct dl_phdr_info *object, size_t size, void *data) {
	struct search *search = data;
	(void)size;
	if (search->known)
		search->known--;
	else if (has_file(object) && !is_same_text(object->dlpi_name, wafpark_preload_entry + sizeof "LD_PRELOAD=" - 1))
		note_candidate(search, last_part(object->dlpi_name), object->dlpi_name);
	return 0;
}

static void note_libraries(const char *folder, uint32_t size, unsigned known) {
	dl_iterate_phdr(note_in_folder, &(struct search){folder, size, known});
}

__attribute__((noinline)) static void note_levels(const char *folder, uint32_t size, unsigned known) {
	char path[LONGEST_PATH];
	if (size + 64 > LONGEST_PATH) {
		note_blindness(WAFPARK_BLIND_WALK);
		return;
	}
	char *end = put_bytes(path, folder, size);
	*end++ = '/';
	end = put_bytes(end, kinds[0], length_of(kinds[0]));
	*end++ = '/';
	for (unsigned i = 0; i < sizeof levels / sizeof *levels; i++)
		note_libraries(path, (uint32_t)(put_bytes(end, levels[i], length_of(levels[i])) - path), known);
}

static void note_folder(const char *folder, uint32_t size, unsigned known) {
	while (size > 1 && folder[size - 1] == '/')
		size--;
	const struct search search = {folder, size, known};
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (note_candidate(&search, kinds[i], "") && i == 0)
			note_levels(folder, size, known);
	note_libraries(folder, size, known);
}

/* Expands "$ORIGIN/../lib" for an object of this folder. Returns 0 for other variables, which are rare. */
static uint32_t expand(const char *from, uint32_t size, const char *origin, char place[LONGEST_PATH]) {
	static const char *const names[] = {"$ORIGIN", "${ORIGIN}"};
	const char *rest = NULL;
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		if (wafpark_after(from, names[i]) && length_of(names[i]) <= size)
			rest = wafpark_after(from, names[i]);
	const uint32_t head = rest ? length_of(origin) : 0, tail = rest ? size - (uint32_t)(rest - from) : size;
	if (head + tail >= LONGEST_PATH || (!rest && size && from[0] == '$'))
		return 0;
	put_bytes(put_bytes(place, origin, head), rest ? rest : from, tail);
	return head + tail;
}

/* Records the search in folders with colons between them. An empty one means the current folder. */
static void note_folders(const char *list, const char *origin, unsigned known) {
	char place[LONGEST_PATH];
	for (;; list++) {
		uint32_t size = 0;
		while (list[size] && list[size] != ':' && list[size] != ';')
			size++;
		const uint32_t expanded = expand(list, size, origin, place);
		if (expanded || !size)
			note_folder(place, expanded, known);
		list += size;
		if (!*list)
			return;
	}
}

/* Records the search in the folders that an object names for its libraries. */
static int note_object_folders(struct dl_phdr_info *object, size_t size, void *data) {
	char origin[LONGEST_PATH];
	const char *texts = NULL;
	uint64_t lists[2] = {0, 0};
	(void)size;
	if (is_of_kernel(object))
		return 0;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];
		if (part->p_type != PT_DYNAMIC)
			continue;
		for (const ElfW(Dyn) *entry = (const void *)(object->dlpi_addr + part->p_vaddr); entry->d_tag != DT_NULL; entry++) {
			if (entry->d_tag == DT_STRTAB) /* some loaders leave it as it is in the file */
				texts = (const char *)(entry->d_un.d_ptr < object->dlpi_addr ? entry->d_un.d_ptr + object->dlpi_addr : entry->d_un.d_ptr);
			if (entry->d_tag == DT_RPATH || entry->d_tag == DT_RUNPATH)
				lists[entry->d_tag == DT_RUNPATH] = entry->d_un.d_val;
		}
	}
	if (!texts || !(lists[0] || lists[1]))
		return 0;
	long end = object->dlpi_name && object->dlpi_name[0] ? 0 : SYSTEM(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", origin, LONGEST_PATH);
	if (!end && length_of(object->dlpi_name) < LONGEST_PATH)
		end = put_bytes(origin, object->dlpi_name, length_of(object->dlpi_name)) - origin;
	while (end > 0 && origin[end - 1] != '/')
		end--;
	origin[end > 1 ? end - 1 : 0] = 0;
	for (unsigned i = 0; i < 2; i++)
		if (lists[i])
			note_folders(texts + lists[i], origin, *(const unsigned *)data);
	return 0;
}

static void note_search(unsigned known) {
	const char *folders = wafpark_find_value("LD_LIBRARY_PATH");
	if (folders && *folders)
		note_folders(folders, "", known);
	dl_iterate_phdr(note_object_folders, &known);
}

static void note_loads(void) {
	unsigned left = known_objects;
	const unsigned known = known_objects;
	expects_loads = 0;
	if (wafpark_watch != WAFPARK_WATCH_ON)
		return;
	dl_iterate_phdr(note_object, &left);
	if (known_objects != known)
		note_search(known);
	if (expected_library[0] && !dl_iterate_phdr(is_expected, expected_library))
		note_blindness(WAFPARK_BLIND_WALK);
	expected_library[0] = 0;
}

HIDDEN void wafpark_expect_loads(const char *name) {
	/* Loads that are still expected are recorded first. */
	wafpark_note_loads_left();
	const uint32_t size = name ? length_of(name) : 0;
	if (size && size < sizeof expected_library)
		put_bytes(expected_library, name, size + 1);
	expects_loads = 1;
}

HIDDEN void wafpark_note_loads_left(void) {
	if (expects_loads)
		note_loads();
}

/* ---- the beginning */

/* Finds the path by which the loader was told to load this library. */
static int find_library(struct dl_phdr_info *object, size_t size, void *data) {
	(void)size;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];
		uintptr_t start = object->dlpi_addr + part->p_vaddr;
		if (part->p_type == PT_LOAD && (uintptr_t)&wafpark_watch - start < part->p_memsz) {
			*(const char **)data = object->dlpi_name;
			return 1;
		}
	}
	return 0;
}

static int write_preload_entry(void) {
	const char *library = NULL;
	dl_iterate_phdr(find_library, (void *)&library);
	if (!library || length_of(library) + sizeof "LD_PRELOAD=" > LONGEST_PATH)
		return 0;
	char *at = put_bytes(wafpark_preload_entry, "LD_PRELOAD=", 11);
	at = put_bytes(at, library, length_of(library));
	*at = 0;
	library_identity = identity_of_path(library);
	return 1;
}

/* If the loader does not find the library, it prints a warning. The path may be gone when the engine has ended. */
HIDDEN int wafpark_is_library_there(void) {
	return library_identity && identity_of_path(wafpark_preload_entry + sizeof "LD_PRELOAD=" - 1) == library_identity;
}

HIDDEN const char *wafpark_find_value(const char *name) {
	uint32_t length = length_of(name);
	for (char **entry = environ; *entry; entry++) {
		uint32_t i = 0;
		while (i < length && (*entry)[i] == name[i])
			i++;
		if (i == length && (*entry)[i] == '=')
			return *entry + length + 1;
	}
	return NULL;
}

/* Records libraries that LD_PRELOAD names and that are not there. The loader reports them and goes on. */
static void note_preloads(void) {
	const char *at = wafpark_find_value("LD_PRELOAD");
	while (at && *at) {
		char name[LONGEST_PATH];
		uint32_t size = 0, slashes = 0;
		for (; at[size] && at[size] != ':' && at[size] != ' ' && size < LONGEST_PATH - 1; size++)
			slashes += at[size] == '/';
		*put_bytes(name, at, size) = 0;
		at += size;
		at += *at == ':' || *at == ' ';
		if (!size || is_same_text(name, wafpark_preload_entry + sizeof "LD_PRELOAD=" - 1))
			continue;
		const long found = slashes ? SYSTEM(SYS_faccessat, AT_FDCWD, name, F_OK) : 0;
		if (found < 0)
			wafpark_note(WAFPARK_FIND, found, 0, AT_FDCWD, name);
		else if (!slashes && !dl_iterate_phdr(is_expected, name))
			note_blindness(WAFPARK_BLIND_WALK);
	}
}

/* Records the start of a program. A region that is full, or belongs to another command by now, takes no record. */
static void note_beginning(const struct text *program, const struct text *folder, int parent, uint32_t token) {
	process_with_known_folder = (int)SYSTEM(SYS_getpid);
	const struct note note = {
		.kind = WAFPARK_BEGIN, .detail = (uint32_t)parent, .token = token, .identity = identity_of_path("/proc/self/exe")};
	append_note(&note, program, folder);
	note_loads();
	note_preloads();
	/* Libraries of LD_AUDIT are loaded into a namespace that we do not see. */
	if (wafpark_find_value("LD_AUDIT"))
		note_blindness(WAFPARK_BLIND_CALL);
}

static int is_region_ours(void) {
	return __atomic_load_n(&arena_log->cursor, __ATOMIC_ACQUIRE) >> 32 == generation;
}

static int map_log(const char *path) {
	int file = (int)SYSTEM(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	if (file < 0)
		return 0;
	long place = SYSTEM(SYS_mmap, NULL, WAFPARK_REGION, PROT_READ | PROT_WRITE, MAP_SHARED, file, (long)region * WAFPARK_REGION);
	SYSTEM(SYS_close, file);
	if (place < 0 && place > -4096)
		return 0;
	arena_log = (void *)place;
	return 1;
}

/* Reads the number at the end of a text, and cuts it off together with the colon before it. */
static int cut_number(char *text, uint32_t *number) {
	uint32_t length = length_of(text), value = 0, factor = 1;
	while (length && text[length - 1] >= '0' && text[length - 1] <= '9') {
		value += factor * (uint32_t)(text[--length] - '0');
		factor *= 10;
	}
	if (length < 2 || text[length - 1] != ':' || factor == 1)
		return 0;
	text[length - 1] = 0;
	*number = value;
	return 1;
}

static int open_log(const char *value, uint32_t *token) {
	char path[LONGEST_PATH];
	uint32_t size = length_of(value);
	if (size + sizeof WAFPARK_TRACE "=" + sizeof ":4294967295" > LONGEST_PATH)
		return 0;
	put_bytes(path, value, size + 1);
	if (!cut_number(path, token))
		return 0;
	char *at = put_bytes(wafpark_trace_entry, WAFPARK_TRACE "=", sizeof WAFPARK_TRACE);
	put_bytes(at, path, length_of(path) + 1);
	return cut_number(path, &generation) && cut_number(path, &region) && map_log(path);
}

/* rustc and clippy: the names of their family in `engine/src/observe/known_programs.rs`. */
static int is_of_rust(const char *program, uint32_t size) {
	static const char *const names[] = {"/rustc", "/clippy-driver"};
	for (int i = 0; i < 2; i++) {
		const uint32_t length = length_of(names[i]);
		if (size > length && is_same_text(program + size - length, names[i]))
			return 1;
	}
	return 0;
}

static void begin_watch(const char *value) {
	char program[LONGEST_PATH], folder[LONGEST_PATH];
	uint32_t token;
	if (!open_log(value, &token) || !write_preload_entry() || !is_region_ours())
		return;
	long program_size = SYSTEM(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", program, LONGEST_PATH);
	long folder_size = SYSTEM(SYS_getcwd, folder, LONGEST_PATH) - 1;
	if (program_size <= 0 || program_size >= LONGEST_PATH || folder_size <= 0)
		return;
	wafpark_watch = WAFPARK_WATCH_ON;
	note_beginning(&(struct text){NULL, program, 0, (uint32_t)program_size},
	               &(struct text){NULL, folder, 0, (uint32_t)folder_size}, (int)SYSTEM(SYS_getppid), token);
	/* If the loader is called as a program, the kernel reports the loader, and not the program that it runs. */
	if (!wafpark_ask_kernel(AT_BASE))
		note_blindness(WAFPARK_BLIND_LOADER);
	/* The path by which the engine has started the program and, if it is a script, its interpreter. */
	const char *called = (const char *)wafpark_ask_kernel(AT_EXECFN);
	if (!token && called) {
		wafpark_note_found(WAFPARK_LOAD, 0, 0, AT_FDCWD, called, identity_of_path(called));
		int is_static;
		wafpark_inspect(AT_FDCWD, called, &is_static);
	}
	program[program_size] = 0;
	wafpark_finds_crates = is_of_rust(program, (uint32_t)program_size);
	if (__atomic_load_n(&arena_log->guards, __ATOMIC_RELAXED))
		wafpark_guard();
}

/* Libraries of the program may call watched functions before libc has an environment. Then this is decided later. */
__attribute__((constructor)) HIDDEN void wafpark_start_watch(void) {
	if (wafpark_watch != WAFPARK_WATCH_UNKNOWN || !environ)
		return;
	const char *value = wafpark_find_value(WAFPARK_TRACE);
	wafpark_watch = wafpark_find_value(WAFPARK_VARIABLE) ? WAFPARK_WATCH_PARKING : WAFPARK_WATCH_OFF;
	if (value && wafpark_watch == WAFPARK_WATCH_OFF)
		begin_watch(value);
}

/* The witness is another open file of the engine, beside the arena: "WAFPARK_TRACE=/proc/1/fd/2:region:generation". */
HIDDEN int wafpark_find_witness(char path[64]) {
	const char *arena_path = wafpark_trace_entry + sizeof WAFPARK_TRACE;
	uint32_t size = 0, folder = 0;
	for (; arena_path[size] && arena_path[size] != ':'; size++)
		if (arena_path[size] == '/')
			folder = size + 1;
	if (arena_log->witness < 0 || !folder || folder > 40)
		return 0;
	*put_number(put_bytes(path, arena_path, folder), (uint32_t)arena_log->witness) = 0;
	return 1;
}

HIDDEN int wafpark_is_observed(void) {
	wafpark_start_watch();
	return wafpark_watch == WAFPARK_WATCH_ON;
}

HIDDEN int32_t wafpark_ahead(void) {
	return wafpark_watch == WAFPARK_WATCH_ON && arena_log ? __atomic_load_n(&arena_log->ahead, __ATOMIC_RELAXED) : 0;
}

/* ---- parked programs */

HIDDEN void wafpark_take_arena(int file, uint32_t regions, const char *path) {
	const uint32_t length = length_of(path), numbers = 3 * sizeof ":4294967295";
	const size_t size = (size_t)regions * WAFPARK_REGION;
	if (sizeof WAFPARK_TRACE + length + numbers > LONGEST_PATH || !write_preload_entry())
		return;
	long place = SYSTEM(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
	if (place < 0 && place > -4096)
		return;
	arena.place = (char *)place;
	arena.size = size;
	arena.end = put_bytes(wafpark_trace_entry, WAFPARK_TRACE "=", sizeof WAFPARK_TRACE);
	arena.end = put_bytes(arena.end, path, length);
}

/* Keeps the command's own region mapped, and unmaps those of other commands. */
static void keep_region(void) {
	const size_t start = (size_t)region * WAFPARK_REGION, end = start + WAFPARK_REGION;
	arena_log = (void *)(arena.place + start);
	if (start)
		SYSTEM(SYS_munmap, arena.place, start);
	if (end < arena.size)
		SYSTEM(SYS_munmap, arena.place + end, arena.size - end);
	char *at = arena.end;
	*at++ = ':';
	at = put_number(at, region);
	*at++ = ':';
	*put_number(at, generation) = 0;
}

HIDDEN void wafpark_watch_child(const struct wafpark_child *child) {
	const struct wafpark_request *request = child->request;
	wafpark_watch = WAFPARK_WATCH_OFF;
	if (!arena.place)
		return;
	region = request->log;
	generation = request->generation;
	if (!generation || region >= arena.size / WAFPARK_REGION) {
		SYSTEM(SYS_munmap, arena.place, arena.size);
		return;
	}
	keep_region();
	if (!is_region_ours())
		return;
	wafpark_watch = WAFPARK_WATCH_ON;
	const struct text program = text_of(child->path), folder = text_of(child->folder);
	note_beginning(&program, &folder, request->asker ? request->asker : (int)SYSTEM(SYS_getppid), request->token);
	wafpark_note_names();
	if (acted_before_parking)
		note_blindness(WAFPARK_BLIND_BEFORE);
}

HIDDEN void wafpark_tell_log(struct wafpark_request *request, uint32_t token) {
	if (wafpark_watch == WAFPARK_WATCH_ON) {
		request->log = region;
		request->token = token;
		request->generation = generation;
	}
}
