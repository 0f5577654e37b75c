/* The first steps of `wafcc COMPILER …`, before libc has begun. They ask the engine. If its answer is a hit, the process ends here.
 *
 * libc asks the processor many questions before `main`. On a virtual machine each of them takes microseconds, and all together take longer
 * than a hit. So this code runs at the program's entry, with its own system calls and memory. It uses a card that an earlier call has written
 * (src/wafcc/card.rs). The card says where the engine is, what to send to it, and which files must be unchanged since then. In unusual cases
 * this code returns, and the program begins normally. If the answer takes long, the program goes on with the open connection. */
#define _GNU_SOURCE
#include "../park/system.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#define MAGIC "wafcard1"
#define PATH 4096
#define CARD 16384
#define CARD_NAME "/wafd-" VERSION ".card-"
#define MOST_BYTES (1ul << 20)
/* Time-outs in microseconds, for the answer and for sending. After the first one, the program itself goes on waiting. */
#define ANSWERED 500000
#define SENT 50000

/* Handed on to the program: a connection over which the command was sent, and the bytes that have come over it. */
struct wafcc_front {
	int socket;
	uint32_t size;
	unsigned char *bytes;
};
struct wafcc_front wafcc_front = {-1, 0, 0};

#define PARTS 9

struct card {
	size_t size, at;
	unsigned char bytes[CARD];
};

/* All memory of this code. What is used lies in as few pages as possible: the kernel makes each page when it is touched, which takes as long
 * as a thousand instructions. */
static struct {
	struct iovec parts[PARTS];
	unsigned count_of_parts;
	/* The user's number plus one; 0 means that it is not known yet. */
	long user;
	unsigned char hello[128], before_environment[17], before_folder[32], before_argv[8], after[4];
	union {
		struct cmsghdr head;
		unsigned char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr message;
	struct sockaddr_un address;
	unsigned char processors[1024];
	struct card card;
	union {
		/* At first: a path that is checked. */
		char path[PATH];
		/* After that: the current folder. */
		unsigned char folder[PATH];
		/* When everything is sent: the answer. */
		unsigned char answer[32768];
	} room;
} memory;

/* ---- functions that libc would have */

static size_t length(const char *text) {
	size_t n = 0;
	while (text[n])
		n++;
	return n;
}

static int begins(const char *text, const char *with) {
	while (*with)
		if (*text++ != *with++)
			return 0;
	return 1;
}

static int equal(const char *a, const char *b) {
	return begins(a, b) && length(a) == length(b);
}

static void copy(void *to, const void *from, size_t size) {
	volatile unsigned char *t = to;
	const unsigned char *f = from;
	for (size_t i = 0; i < size; i++)
		t[i] = f[i];
}

static uint32_t u32(const unsigned char *at) {
	return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void put32(unsigned char *at, uint32_t number) {
	for (int i = 0; i < 4; i++)
		at[i] = number >> 8 * i & 255;
}

static uint64_t u64(const unsigned char *at) {
	return u32(at) | (uint64_t)u32(at + 4) << 32;
}

/* ---- the card */

static const char *variable(char **environment, const char *name) {
	size_t size = length(name);
	for (; *environment; environment++)
		if (begins(*environment, name) && (*environment)[size] == '=')
			return *environment + size + 1;
	return "";
}

#define EMPTY_HASH 0xcbf29ce484222325u

/* One step of FNV-1a, as in src/settings/place.rs. */
static uint64_t add_to_hash(uint64_t hash, char byte) {
	return (hash ^ (unsigned char)byte) * 0x100000001b3u;
}

/* A digest of the variables on which the card may depend, as in src/wafcc/card.rs. */
static uint64_t digest(char **environment) {
	uint64_t hash = EMPTY_HASH;
	for (; *environment; environment++) {
		const char *text = *environment;
		if (!begins(text, "WAFCC_") && !begins(text, "WAFD_") && !begins(text, "XDG_") && !begins(text, "HOME="))
			continue;
		do
			hash = add_to_hash(hash, *text);
		while (*text++);
	}
	return hash;
}

static int append(char *path, size_t *size, const char *text) {
	size_t more = length(text);
	if (*size + more >= PATH)
		return 0;
	copy(path + *size, text, more + 1);
	*size += more;
	return 1;
}

static long user(void) {
	if (!memory.user)
		memory.user = SYSTEM(SYS_geteuid) + 1;
	return memory.user - 1;
}

static int append_user(char *path, size_t *size) {
	char number[12] = {0};
	size_t at = sizeof number - 1;
	long rest = user();
	do
		number[--at] = (char)('0' + rest % 10);
	while (rest /= 10);
	return append(path, size, number + at);
}

static int append_digest(char *path, size_t *size, uint64_t number) {
	char name[17] = {0};
	for (int i = 15; i >= 0; i--, number >>= 4)
		name[i] = "0123456789abcdef"[number & 15];
	return append(path, size, name);
}

/* The folder of cards: the runtime folder of an engine that has the default store. */
static int find_folder(char *path, size_t *size, char **environment) {
	const char *own = variable(environment, "WAFD_RUNTIME_DIR"), *session = variable(environment, "XDG_RUNTIME_DIR");
	*size = 0;
	if (*own)
		return append(path, size, own);
	if (*session)
		return append(path, size, session) && append(path, size, "/wafd");
	return append(path, size, "/tmp/wafd-") && append_user(path, size);
}

static int is_ours_alone(const char *path) {
	struct stat found;
	if (SYSTEM(SYS_newfstatat, AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return S_ISDIR(found.st_mode) && !(found.st_mode & 077) && found.st_uid == (uid_t)user();
}

static const unsigned char *take(size_t size) {
	struct card *card = &memory.card;
	if (size > card->size - card->at)
		return 0;
	card->at += size;
	return card->bytes + card->at - size;
}

/* Takes a number of bytes, and then that many bytes. A text ends with a zero byte. */
static const unsigned char *take_bytes(uint32_t *size) {
	const unsigned char *head = take(4);
	if (!head)
		return 0;
	*size = u32(head);
	return take(*size);
}

static const char *take_text(void) {
	uint32_t size = 0;
	const unsigned char *text = take_bytes(&size);
	return text && size && !text[size - 1] ? (const char *)text : 0;
}

static int read_card(char **environment) {
	char *path = memory.room.path;
	size_t size = 0;
	if (!find_folder(path, &size, environment) || path[0] != '/' || !is_ours_alone(path))
		return 0;
	if (!append(path, &size, CARD_NAME) || !append_digest(path, &size, digest(environment)))
		return 0;
	long file = SYSTEM(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
	if (file < 0)
		return 0;
	long got = SYSTEM(SYS_read, file, memory.card.bytes, CARD);
	SYSTEM(SYS_close, file);
	memory.card.size = got > 0 && got < CARD ? (size_t)got : 0;
	memory.card.at = 0;
	const unsigned char *magic = take(8);
	return magic && begins((const char *)magic, MAGIC);
}

/* Whether the card itself is in this folder, which has then been checked already. */
static int has_card(const char *folder) {
	return begins(memory.room.path, folder) && begins(memory.room.path + length(folder), CARD_NAME);
}

/* Whether the next file of the card is unchanged. Its first byte is 0 if it was not there, 1 for a file, 2 for a folder. */
static int is_next_unchanged(void) {
	const unsigned char *was = take(1 + 7 * 8);
	const char *path = take_text();
	if (!was || !path)
		return 0;
	struct stat is;
	long status = SYSTEM(SYS_newfstatat, AT_FDCWD, path, &is, 0);
	if (was[0] == 0)
		return status == -ENOENT || status == -ENOTDIR;
	if (status < 0)
		return 0;
	uint64_t all[7] = {is.st_dev, is.st_ino, (uint64_t)is.st_size, (uint64_t)is.st_mtim.tv_sec, (uint64_t)is.st_mtim.tv_nsec,
	                   (uint64_t)is.st_ctim.tv_sec, (uint64_t)is.st_ctim.tv_nsec};
	for (int i = 0; i < (was[0] == 1 ? 7 : 2); i++)
		if (u64(was + 1 + 8 * i) != all[i])
			return 0;
	return 1;
}

static int exists(const char *path) {
	struct stat found;
	return SYSTEM(SYS_newfstatat, AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Whether an earlier call has noted that the engine could not be reached (src/wafcc/trouble.rs). */
static int has_trouble_note(const char *folder) {
	char *path = memory.room.path;
	size_t size = 0;
	if (!append(path, &size, folder) || !append(path, &size, "/wafd-" VERSION ".trouble") || exists(path))
		return 1;
	uint64_t hash = EMPTY_HASH;
	for (const char *c = folder; *c; c++)
		hash = add_to_hash(hash, *c);
	size = 0;
	return !append(path, &size, "/tmp/wafcc-") || !append_user(path, &size) || !append(path, &size, "/trouble-") ||
	       !append_digest(path, &size, hash) || exists(path);
}

/* ---- the question */

/* Counts strings and their bytes. False if they do not follow each other in memory, as the kernel has put them there. */
static int measure_strings(char **strings, size_t *count, size_t *size) {
	for (*count = 0, *size = 0; strings[*count]; ++*count) {
		if (strings[*count] != strings[0] + *size)
			return 0;
		*size += length(strings[*count]) + 1;
		if (*size > MOST_BYTES)
			return 0;
	}
	return *count > 0;
}

/* Whether this call is surely a compile, and prints to no terminal. All other calls are left to the program. */
static int is_usual(int count, char **argv, char **environment) {
	if (count < 3)
		return 0;
	const char *name = argv[0];
	for (const char *c = argv[0]; *c; c++)
		if (*c == '/')
			name = c + 1;
	if (!equal(name, "wafcc") || argv[1][0] == '-' || !argv[1][0] || equal(argv[1], "run"))
		return 0;
	int compiles = 0;
	for (int i = 2; i < count; i++) {
		compiles |= equal(argv[i], "-c");
		if (equal(argv[i], "-"))
			return 0;
	}
	for (char **each = environment; *each; each++) {
		const char *c = *each;
		if (begins(c, "WAFPARK_"))
			return 0;
		while (*c && *c != '=')
			c++;
		if (!*c || c == *each)
			return 0;
	}
	struct stat input;
	struct winsize size;
	return compiles && SYSTEM(SYS_fstat, 0, &input) == 0 && (S_ISREG(input.st_mode) || S_ISCHR(input.st_mode)) &&
	       SYSTEM(SYS_fcntl, 1, F_GETFD) >= 0 && SYSTEM(SYS_fcntl, 2, F_GETFD) >= 0 &&
	       SYSTEM(SYS_ioctl, 0, TIOCGWINSZ, &size) < 0 && SYSTEM(SYS_ioctl, 2, TIOCGWINSZ, &size) < 0;
}

/* Makes the session's number and name from the parent process: all commands of one parent are one build. */
static size_t name_session(unsigned char session[16], char name[64]) {
	char path[32] = "/proc/", stat[1024];
	char number[12] = {0};
	size_t at = sizeof number - 1, size = 6;
	long parent = SYSTEM(SYS_getppid);
	for (long rest = parent; at && (rest || at == sizeof number - 1); rest /= 10)
		number[--at] = (char)('0' + rest % 10);
	copy(path + size, number + at, sizeof number - at);
	size += sizeof number - 1 - at;
	copy(path + size, "/stat", 6);
	long got = 0, file = SYSTEM(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (file >= 0) {
		got = SYSTEM(SYS_read, file, stat, sizeof stat);
		SYSTEM(SYS_close, file);
	}
	if (got <= 0)
		return 0;
	long open = 0, close = got - 1;
	while (open < got && stat[open] != '(')
		open++;
	while (close > 0 && stat[close] != ')')
		close--;
	/* The start time is the twentieth word after the name. */
	uint64_t start = 0;
	long word = 0, c = close + 1;
	while (c < got && word < 20)
		word += stat[c++] == ' ';
	while (c < got && stat[c] >= '0' && stat[c] <= '9')
		start = start * 10 + (uint64_t)(stat[c++] - '0');
	if (open >= close || word < 20)
		return 0;
	copy(session, "wafcc\0\0\0", 8);
	put32(session + 4, (uint32_t)parent);
	put32(session + 8, (uint32_t)start);
	put32(session + 12, (uint32_t)(start >> 32));
	size_t used = 10;
	copy(name, "wafcc for ", used);
	for (long i = open + 1; i < close && used < 64; i++)
		name[used++] = stat[i];
	return used;
}

static uint32_t processors(void) {
	unsigned char *set = memory.processors;
	long size = SYSTEM(SYS_sched_getaffinity, 0, sizeof memory.processors, set);
	uint32_t count = 0;
	for (long i = 0; i < size; i++)
		for (unsigned bits = set[i]; bits; bits &= bits - 1)
			count++;
	return count ? count : 1;
}

static void add_part(const void *bytes, size_t size) {
	memory.parts[memory.count_of_parts].iov_base = (void *)(uintptr_t)bytes;
	memory.parts[memory.count_of_parts++].iov_len = size;
}

/* Sends greeting, environment, settings and command in one message. */
static int send_command(int socket, char **argv, char **environment, const unsigned char *caching, size_t caching_size) {
	unsigned char *hello = memory.hello, *before_environment = memory.before_environment, *before_folder = memory.before_folder;
	unsigned char *before_argv = memory.before_argv, *folder = memory.room.folder;
	size_t variables, variables_size, words, words_size;
	if (!measure_strings(environment, &variables, &variables_size) || !measure_strings(argv + 1, &words, &words_size))
		return 0;
	char name[64];
	size_t name_size = name_session(hello + 13, name);
	long folder_size = SYSTEM(SYS_getcwd, folder, sizeof memory.room.folder);
	if (!name_size || folder_size < 2 || folder[0] != '/')
		return 0;
	folder_size--;
	copy(hello + 4, "\1WAFD\1\0\1\0", 9);
	put32(hello + 29, processors());
	uint32_t umask = (uint32_t)SYSTEM(SYS_umask, 0);
	SYSTEM(SYS_umask, umask);
	put32(hello + 33, 4 | 8 | 16 | umask << 16);
	put32(hello + 37, 0);
	put32(hello + 41, 0);
	put32(hello + 45, (uint32_t)name_size);
	copy(hello + 49, name, name_size);
	put32(hello, (uint32_t)(45 + name_size));
	add_part(hello, 49 + name_size);
	put32(before_environment, (uint32_t)(1 + 4 + 8 + variables_size));
	before_environment[4] = 2;
	put32(before_environment + 5, 0);
	put32(before_environment + 9, (uint32_t)variables);
	put32(before_environment + 13, (uint32_t)variables_size);
	add_part(before_environment, sizeof memory.before_environment);
	add_part(environment[0], variables_size);
	add_part(caching, caching_size);
	put32(before_folder, (uint32_t)(1 + 4 + 4 + 4 + 8 + 4 + (size_t)folder_size + 8 + words_size + 4));
	copy(before_folder + 4, "\3\0\0\0\0\0\0\0\0\2\2\1\1", 13);
	put32(before_folder + 25, (uint32_t)folder_size);
	add_part(before_folder, 29);
	add_part(folder, (size_t)folder_size);
	put32(before_argv, (uint32_t)words);
	put32(before_argv + 4, (uint32_t)words_size);
	add_part(before_argv, sizeof memory.before_argv);
	add_part(argv[1], words_size);
	add_part(memory.after, sizeof memory.after);
	/* Standard input is sent with the message. */
	struct cmsghdr *head = &memory.control.head;
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	struct msghdr *message = &memory.message;
	message->msg_iov = memory.parts;
	message->msg_iovlen = memory.count_of_parts;
	message->msg_control = head;
	message->msg_controllen = sizeof memory.control;
	size_t all = 0;
	for (unsigned i = 0; i < memory.count_of_parts; i++)
		all += memory.parts[i].iov_len;
	/* A message that does not fit is rare. The engine forgets a part of a message when the connection ends. */
	return SYSTEM(SYS_sendmsg, socket, message, MSG_NOSIGNAL) == (long)all;
}

static long connect_to(const char *path) {
	struct sockaddr_un *address = &memory.address;
	address->sun_family = AF_UNIX;
	if (length(path) >= sizeof address->sun_path)
		return -1;
	copy(address->sun_path, path, length(path) + 1);
	long socket = SYSTEM(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (socket < 0)
		return -1;
	struct timeval answered = {0, ANSWERED}, sent = {0, SENT};
	SYSTEM(SYS_setsockopt, socket, SOL_SOCKET, SO_RCVTIMEO, &answered, sizeof answered);
	SYSTEM(SYS_setsockopt, socket, SOL_SOCKET, SO_SNDTIMEO, &sent, sizeof sent);
	if (SYSTEM(SYS_connect, socket, address, sizeof *address) == 0)
		return socket;
	SYSTEM(SYS_close, socket);
	return -1;
}

/* ---- the answer */

static void print(int stream, const unsigned char *bytes, size_t size) {
	while (size) {
		long written = SYSTEM(SYS_write, stream, bytes, size);
		/* It is no error of the command if its reader is gone. */
		if (written < 0 && written != -EINTR)
			return;
		if (written > 0) {
			bytes += written;
			size -= (size_t)written;
		}
	}
}

__attribute__((noreturn)) static void end_as(int32_t code) {
	if (code >= 0)
		leave(code);
	/* No core dump: the command has already made its own. */
	struct rlimit none = {0, 0};
	struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		uint64_t mask;
	} plain = {SIG_DFL, 0, 0, 0};
	SYSTEM(SYS_prlimit64, 0, RLIMIT_CORE, &none, 0);
	SYSTEM(SYS_rt_sigaction, -code, &plain, 0, sizeof plain.mask);
	SYSTEM(SYS_kill, SYSTEM(SYS_getpid), -code);
	leave(128 - code);
}

enum progress { INCOMPLETE, COMPLETE, UNUSUAL };

/* Reads the frames that have come, up to the outcome of the command. With `prints`, prints the output in them. */
static enum progress read_frames(const unsigned char *bytes, size_t size, int prints, int32_t *code) {
	for (size_t at = 0; at + 5 <= size;) {
		const unsigned char *frame = bytes + at + 4;
		size_t more = u32(bytes + at), most = size - at - 4;
		if (more > most)
			return more > (8u << 20) ? UNUSUAL : INCOMPLETE;
		switch (frame[0]) {
		case 0x81:
		case 0x87:
			break;
		case 0x83:
			if (more < 10 || u32(frame + 6) != more - 10)
				return UNUSUAL;
			if (prints)
				print(frame[5] == 1 ? 1 : 2, frame + 10, more - 10);
			break;
		case 0x84:
			if (more < 11 || frame[5] != 0)
				return UNUSUAL;
			*code = (int32_t)u32(frame + 7);
			return COMPLETE;
		default:
			return UNUSUAL;
		}
		at += 4 + more;
	}
	return INCOMPLETE;
}

/* Waits for the answer, and ends the process with it. Returns if the program must do everything itself, or go on waiting. */
static void await_answer(int socket) {
	unsigned char *bytes = memory.room.answer;
	size_t size = 0, most = sizeof memory.room.answer;
	for (;;) {
		if (size == most) {
			long larger = SYSTEM(SYS_mmap, 0, 4 * most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (larger < 0 && larger > -4096) {
				wafcc_front = (struct wafcc_front){socket, (uint32_t)size, bytes};
				return;
			}
			copy((void *)larger, bytes, size);
			bytes = (unsigned char *)larger;
			most *= 4;
		}
		long got = SYSTEM(SYS_recvfrom, socket, bytes + size, most - size, 0, 0, 0);
		if (got == -EINTR)
			continue;
		if (got == -EAGAIN) {
			wafcc_front = (struct wafcc_front){socket, (uint32_t)size, bytes};
			return;
		}
		if (got <= 0)
			break;
		size += (size_t)got;
		int32_t code = 0;
		enum progress progress = read_frames(bytes, size, 0, &code);
		if (progress == COMPLETE) {
			read_frames(bytes, size, 1, &code);
			end_as(code);
		}
		if (progress == UNUSUAL)
			break;
	}
	SYSTEM(SYS_close, socket);
}

/* Called at the program's entry. `stack` is the stack as the kernel has left it. */
HIDDEN void wafcc_front_begin(long *stack);
HIDDEN void wafcc_front_begin(long *stack) {
	int count = (int)stack[0];
	char **argv = (char **)(stack + 1), **environment = argv + count + 1;
	if (!is_usual(count, argv, environment) || !read_card(environment))
		return;
	const char *folder = take_text(), *path = take_text();
	uint32_t caching_size = 0;
	const unsigned char *caching = take_bytes(&caching_size), *watched = take(4);
	if (!folder || !path || !caching || !watched)
		return;
	if (!(has_card(folder) || is_ours_alone(folder)) || has_trouble_note(folder))
		return;
	for (uint32_t left = u32(watched); left; left--)
		if (!is_next_unchanged())
			return;
	long socket = connect_to(path);
	if (socket < 0)
		return;
	if (send_command((int)socket, argv, environment, caching, caching_size))
		await_answer((int)socket);
	else
		SYSTEM(SYS_close, socket);
}

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl wafcc_front_entry\n"
        "wafcc_front_entry:\n"
        "	mov %rsp, %rbx\n"
        "	mov %rdx, %r12\n"
        "	mov %rsp, %rdi\n"
        "	and $-16, %rsp\n"
        "	call wafcc_front_begin\n"
        "	mov %rbx, %rsp\n"
        "	mov %r12, %rdx\n"
        "	xor %ebp, %ebp\n"
        "	jmp _start\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl wafcc_front_entry\n"
        "wafcc_front_entry:\n"
        "	mov x19, x0\n"
        "	mov x0, sp\n"
        "	bl wafcc_front_begin\n"
        "	mov x0, x19\n"
        "	b _start\n");
#endif
