/* Notes what an observed process does, in memory that it shares with the engine.
 *
 * A record is appended in two steps, so that all processes and threads of a command can do so at once: the cursor is moved
 * by compare and exchange, which fails if the berth has gone to another command in the meantime; and the first word of the
 * record is written last. A process that was killed between them leaves a gap that the engine sees. Paths are noted as they
 * were given, if the engine knows the folder of the process: else they are made absolute here. */
#define _GNU_SOURCE
#include "record.h"
#include "park.h"
#include "system.h"

#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>

#define LONGEST 4096

extern char **environ;

HIDDEN enum wafpark_watch wafpark_watch = WAFPARK_WATCH_UNKNOWN;
HIDDEN char wafpark_trace_entry[LONGEST], wafpark_preload_entry[LONGEST];

static struct wafpark_log *arena_log;
static uint32_t berth, generation;
/* Of a parked program: where the arena is, as a place in `wafpark_trace_entry`, after which berth and generation follow. */
static struct {
	char *place, *end;
	size_t size;
} arena;
static int observed; /* the process whose folder the engine was told; not its forks */
static int expects_loads, did_before;
static uint32_t noted_once;
static unsigned known_objects;

/* A text of a record in two parts, with a slash between them if there are two. */
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

/* Room for a record; none if the berth is full or no longer ours. */
static struct wafpark_record *make_room(uint32_t size) {
	uint64_t now = __atomic_load_n(&arena_log->cursor, __ATOMIC_RELAXED), next;
	uint32_t place;
	do {
		place = (uint32_t)now;
		if (now >> 32 != generation || place > WAFPARK_BERTH)
			return NULL;
		next = size > WAFPARK_BERTH - place ? WAFPARK_FULL : place + size;
	} while (!__atomic_compare_exchange_n(&arena_log->cursor, &now, (uint64_t)generation << 32 | next, 0, __ATOMIC_ACQ_REL,
	                                      __ATOMIC_RELAXED));
	return next == WAFPARK_FULL ? NULL : (void *)((char *)arena_log + place);
}

static void append(enum wafpark_kind kind, long result, uint32_t detail, const struct text *first, const struct text *second) {
	uint32_t first_size = size_of(first), second_size = second ? size_of(second) : 0;
	uint32_t size = ((uint32_t)sizeof(struct wafpark_record) + first_size + second_size + 7) & ~7u;
	struct wafpark_record *record = make_room(size);
	if (!record)
		return;
	record->size = size;
	record->process = (uint32_t)SYSTEM(SYS_getpid);
	record->kind = (uint16_t)kind;
	record->error = result < 0 && result > -4096 ? (uint16_t)-result : 0;
	record->detail = detail;
	record->first = first_size;
	record->second = second_size;
	char *at = put_text((char *)(record + 1), first);
	if (second)
		put_text(at, second);
	__atomic_store_n(&record->commit, generation, __ATOMIC_RELEASE);
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

/* The path behind an open file, or a size that is no size. */
static long read_file(int file, char *buffer) {
	char link[40];
	char *end = put_number(put_bytes(link, "/proc/self/fd/", 14), (uint32_t)file);
	*end = 0;
	return SYSTEM(SYS_readlinkat, AT_FDCWD, link, buffer, LONGEST);
}

/* A path that we make absolute holds for this folder only, whoever asked for it. */
static void note_place(void) {
	const struct text none = {0};
	append(WAFPARK_LOCATE, 0, 1, &none, NULL);
}

/* The folder from which a relative path is meant; an empty one if the engine knows it. */
static int find_head(int folder, struct text *text, char *buffer) {
	long size;
	if (!text->tail_size || text->tail[0] == '/')
		return 1;
	if (folder == AT_FDCWD) {
		if ((int)SYSTEM(SYS_getpid) == observed)
			return 1;
		size = SYSTEM(SYS_getcwd, buffer, LONGEST) - 1;
	} else
		size = read_file(folder, buffer);
	if (size <= 0 || size >= LONGEST || buffer[0] != '/')
		return 0;
	text->head = buffer;
	text->head_size = (uint32_t)size;
	note_place();
	return 1;
}

static struct text text_of(const char *words) {
	return (struct text){NULL, words, 0, length_of(words)};
}

static void note_blindness(enum wafpark_blindness why) {
	const struct text none = {0};
	append(WAFPARK_BLIND, 0, why, &none, NULL);
}

__attribute__((noinline)) static void note_far(enum wafpark_kind kind, long result, uint32_t detail, int folder,
                                               struct text *path) {
	char buffer[LONGEST];
	if (find_head(folder, path, buffer))
		append(kind, result, detail, path, NULL);
	else if (result >= 0)
		note_blindness(WAFPARK_BLIND_FOLDER);
}

/* ---- what the other files call */

static void note_loads(void);

static int is_watched(void) {
	if (wafpark_watch == WAFPARK_WATCH_UNKNOWN)
		wafpark_start_watch();
	if (wafpark_watch == WAFPARK_WATCH_PARKING)
		did_before = 1;
	if (wafpark_watch == WAFPARK_WATCH_ON && expects_loads)
		note_loads();
	return wafpark_watch == WAFPARK_WATCH_ON;
}

HIDDEN void wafpark_note(enum wafpark_kind kind, long result, uint32_t detail, int folder, const char *path) {
	if (!path || result == -14 /* EFAULT: there is nothing to read */ || !is_watched())
		return;
	/* Interpreters seed and measure before they open the first file; what comes later is another matter. */
	if (kind == WAFPARK_OPEN && result >= 0)
		noted_once = 0;
	struct text text = text_of(path);
	if (path[0] == '/')
		append(kind, result, detail, &text, NULL);
	else
		note_far(kind, result, detail, folder, &text);
}

HIDDEN void wafpark_note_two(enum wafpark_kind kind, long result, int from_folder, const char *from, int to_folder,
                             const char *to) {
	char from_buffer[LONGEST], to_buffer[LONGEST];
	if (!from || !to || result == -14 || !is_watched())
		return;
	struct text first = text_of(from), second = text_of(to);
	if (find_head(from_folder, &first, from_buffer) && find_head(to_folder, &second, to_buffer))
		append(kind, result, 0, &first, &second);
	else if (result >= 0)
		note_blindness(WAFPARK_BLIND_FOLDER);
}

/* What says no more when it is said again is said once. */
HIDDEN void wafpark_note_word(enum wafpark_kind kind, uint32_t detail, const char *word) {
	const uint32_t bit = 1u << kind, once = 1u << WAFPARK_TIME | 1u << WAFPARK_DATE | 1u << WAFPARK_RANDOM;
	wafpark_start_watch();
	if (kind == WAFPARK_ASK && wafpark_watch == WAFPARK_WATCH_PARKING)
		return; /* before.c has its name */
	if ((noted_once & bit) || !is_watched())
		return;
	noted_once |= bit & once;
	const struct text text = text_of(word);
	append(kind, 0, detail, &text, NULL);
}

HIDDEN void wafpark_note_file(enum wafpark_kind kind, long result, uint32_t detail, int file) {
	char buffer[LONGEST];
	if (result == -9 /* EBADF */ || !is_watched())
		return;
	long size = read_file(file, buffer);
	const struct text path = {NULL, buffer, 0, (uint32_t)size};
	if (size > 0 && size < LONGEST && buffer[0] == '/') {
		note_place();
		append(kind, result, detail, &path, NULL);
	} else
		note_blindness(WAFPARK_BLIND_FOLDER);
}

/* ---- libraries */

static int note_object(struct dl_phdr_info *object, size_t size, void *data) {
	unsigned *left = data;
	(void)size;
	if (*left && !object->dlpi_subs) {
		--*left;
		return 0;
	}
	known_objects++;
	if (object->dlpi_name && object->dlpi_name[0] && object->dlpi_name[0] != 'l') {
		struct text path = text_of(object->dlpi_name);
		if (path.tail[0] == '/')
			append(WAFPARK_LOAD, 0, 0, &path, NULL);
		else
			note_far(WAFPARK_LOAD, 0, 0, AT_FDCWD, &path);
	}
	return 0;
}

static void note_loads(void) {
	unsigned left = known_objects;
	expects_loads = 0;
	if (wafpark_watch == WAFPARK_WATCH_ON)
		dl_iterate_phdr(note_object, &left);
}

HIDDEN void wafpark_expect_loads(void) {
	expects_loads = 1;
}

HIDDEN void wafpark_note_loads_left(void) {
	if (expects_loads)
		note_loads();
}

/* ---- the beginning */

/* The library's own file, as the loader was told it. */
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
	if (!library || length_of(library) + sizeof "LD_PRELOAD=" > LONGEST)
		return 0;
	char *at = put_bytes(wafpark_preload_entry, "LD_PRELOAD=", 11);
	at = put_bytes(at, library, length_of(library));
	*at = 0;
	return 1;
}

/* A log that is full, or of another command by now, takes nothing more. */
static void note_beginning(const struct text *program, const struct text *folder, int parent) {
	observed = (int)SYSTEM(SYS_getpid);
	append(WAFPARK_BEGIN, 0, (uint32_t)parent, program, folder);
	note_loads();
}

static int is_ours(void) {
	return __atomic_load_n(&arena_log->cursor, __ATOMIC_ACQUIRE) >> 32 == generation;
}

static int map_log(const char *path) {
	int file = (int)SYSTEM(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	if (file < 0)
		return 0;
	long place = SYSTEM(SYS_mmap, NULL, WAFPARK_BERTH, PROT_READ | PROT_WRITE, MAP_SHARED, file, (long)berth * WAFPARK_BERTH);
	SYSTEM(SYS_close, file);
	if (place < 0 && place > -4096)
		return 0;
	arena_log = (void *)place;
	return 1;
}

/* Reads a number from its end back to the colon before it, and makes the text end there. */
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

static int open_log(const char *value) {
	char path[LONGEST];
	uint32_t size = length_of(value);
	if (size + sizeof WAFPARK_TRACE "=" > LONGEST)
		return 0;
	put_bytes(path, value, size + 1);
	char *at = put_bytes(wafpark_trace_entry, WAFPARK_TRACE "=", sizeof WAFPARK_TRACE);
	put_bytes(at, value, size + 1);
	return cut_number(path, &generation) && cut_number(path, &berth) && map_log(path);
}

static const char *find_value(const char *name) {
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

static void watch_this(const char *value) {
	char program[LONGEST], folder[LONGEST];
	if (!open_log(value) || !write_preload_entry() || !is_ours())
		return;
	long program_size = SYSTEM(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", program, LONGEST);
	long folder_size = SYSTEM(SYS_getcwd, folder, LONGEST) - 1;
	if (program_size <= 0 || program_size >= LONGEST || folder_size <= 0)
		return;
	wafpark_watch = WAFPARK_WATCH_ON;
	note_beginning(&(struct text){NULL, program, 0, (uint32_t)program_size},
	               &(struct text){NULL, folder, 0, (uint32_t)folder_size}, (int)SYSTEM(SYS_getppid));
}

/* Libraries of the program may call what is watched before libc has an environment. */
__attribute__((constructor)) HIDDEN void wafpark_start_watch(void) {
	if (wafpark_watch != WAFPARK_WATCH_UNKNOWN || !environ)
		return;
	const char *value = find_value(WAFPARK_TRACE);
	wafpark_watch = find_value(WAFPARK_VARIABLE) ? WAFPARK_WATCH_PARKING : WAFPARK_WATCH_OFF;
	if (value && wafpark_watch == WAFPARK_WATCH_OFF)
		watch_this(value);
}

HIDDEN int wafpark_is_observed(void) {
	wafpark_start_watch();
	return wafpark_watch == WAFPARK_WATCH_ON;
}

/* ---- parked programs */

HIDDEN void wafpark_take_arena(int file, uint32_t berths, const char *path) {
	const uint32_t length = length_of(path), numbers = 2 * sizeof ":4294967295";
	const size_t size = (size_t)berths * WAFPARK_BERTH;
	if (sizeof WAFPARK_TRACE + length + numbers > LONGEST || !write_preload_entry())
		return;
	long place = SYSTEM(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
	if (place < 0 && place > -4096)
		return;
	arena.place = (char *)place;
	arena.size = size;
	arena.end = put_bytes(wafpark_trace_entry, WAFPARK_TRACE "=", sizeof WAFPARK_TRACE);
	arena.end = put_bytes(arena.end, path, length);
}

/* Other commands' berths are no business of this one. */
static void keep_log(void) {
	const size_t start = (size_t)berth * WAFPARK_BERTH, end = start + WAFPARK_BERTH;
	arena_log = (void *)(arena.place + start);
	if (start)
		SYSTEM(SYS_munmap, arena.place, start);
	if (end < arena.size)
		SYSTEM(SYS_munmap, arena.place + end, arena.size - end);
	char *at = arena.end;
	*at++ = ':';
	at = put_number(at, berth);
	*at++ = ':';
	*put_number(at, generation) = 0;
}

HIDDEN void wafpark_watch_child(const struct wafpark_child *child) {
	const struct wafpark_request *request = child->request;
	wafpark_watch = WAFPARK_WATCH_OFF;
	if (!arena.place)
		return;
	berth = request->log;
	generation = request->generation;
	if (!generation || berth >= arena.size / WAFPARK_BERTH) {
		SYSTEM(SYS_munmap, arena.place, arena.size);
		return;
	}
	keep_log();
	if (!is_ours())
		return;
	wafpark_watch = WAFPARK_WATCH_ON;
	const struct text program = text_of(child->path), folder = text_of(child->folder);
	note_beginning(&program, &folder, request->asker ? request->asker : (int)SYSTEM(SYS_getppid));
	wafpark_note_names();
	if (did_before)
		note_blindness(WAFPARK_BLIND_BEFORE);
}

HIDDEN void wafpark_tell_log(struct wafpark_request *request) {
	if (wafpark_watch == WAFPARK_WATCH_ON) {
		request->log = berth;
		request->generation = generation;
	}
}
