/* The first steps of `wafcc COMPILER …`, before libc has begun: asks the engine, and ends when its answer is all there is to do.
 *
 * libc asks the processor many questions before `main`; on a virtual machine each of them takes microseconds, and all
 * together they take longer than a hit. So this runs at the program's entry, with system calls and memory of its own, by what
 * an earlier call has written on a card (src/wafcc/card.rs): where the engine is, what it is to be told, and which files must
 * be as they were then for that to hold. Whatever is not as usual is left to the program itself, which begins as if
 * nothing had been; a wait that takes long is handed on to it. */
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
#define MOST (1ul << 20)
/* Microseconds: what takes longer is waited for by the program. */
#define ANSWERED 500000
#define SENT 50000

/* What the program goes on with: a connection over which the command was asked for, and what has come over it. */
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

/* All memory of ours. What is used of it lies in as few pages as can be: the kernel makes each when it is touched, which takes as long as
 * a thousand instructions. */
static struct {
	struct iovec parts[PARTS];
	unsigned count_of_parts;
	/* Who calls us, and one: nought is not known yet. */
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
		/* A name that is looked at. */
		char path[PATH];
		/* After that, where we are. */
		unsigned char folder[PATH];
		/* And when all is said, the answer. */
		unsigned char answer[32768];
	} room;
} our;

/* ---- what libc would have */

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

#define NOTHING 0xcbf29ce484222325u

/* FNV-1a, as src/settings/place.rs has it. */
static uint64_t mix(uint64_t known, char byte) {
	return (known ^ (unsigned char)byte) * 0x100000001b3u;
}

/* Over the variables on which the card may depend, as src/wafcc/card.rs has it. */
static uint64_t digest(char **environment) {
	uint64_t known = NOTHING;
	for (; *environment; environment++) {
		const char *text = *environment;
		if (!begins(text, "WAFCC_") && !begins(text, "WAFD_") && !begins(text, "XDG_") && !begins(text, "HOME="))
			continue;
		do
			known = mix(known, *text);
		while (*text++);
	}
	return known;
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
	if (!our.user)
		our.user = SYSTEM(SYS_geteuid) + 1;
	return our.user - 1;
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

/* The folder in which cards are: where engines are without a store of their own. */
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
	struct card *card = &our.card;
	if (size > card->size - card->at)
		return 0;
	card->at += size;
	return card->bytes + card->at - size;
}

/* A number of bytes and so many of them; a text ends with a zero. */
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
	char *path = our.room.path;
	size_t size = 0;
	if (!find_folder(path, &size, environment) || path[0] != '/' || !is_ours_alone(path))
		return 0;
	if (!append(path, &size, CARD_NAME) || !append_digest(path, &size, digest(environment)))
		return 0;
	long file = SYSTEM(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
	if (file < 0)
		return 0;
	long got = SYSTEM(SYS_read, file, our.card.bytes, CARD);
	SYSTEM(SYS_close, file);
	our.card.size = got > 0 && got < CARD ? (size_t)got : 0;
	our.card.at = 0;
	const unsigned char *magic = take(8);
	return magic && begins((const char *)magic, MAGIC);
}

/* Whether the card itself is in this folder, which was looked at then. */
static int has_card(const char *folder) {
	return begins(our.room.path, folder) && begins(our.room.path + length(folder), CARD_NAME);
}

/* A file that was looked at for the card is as it was: 0 not there, 1 a file, 2 a folder. */
static int holds(void) {
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

/* A call before us has noted that the engine could not be reached, as src/wafcc/trouble.rs does. */
static int is_troubled(const char *folder) {
	char *path = our.room.path;
	size_t size = 0;
	if (!append(path, &size, folder) || !append(path, &size, "/wafd-" VERSION ".trouble") || exists(path))
		return 1;
	uint64_t known = NOTHING;
	for (const char *c = folder; *c; c++)
		known = mix(known, *c);
	size = 0;
	return !append(path, &size, "/tmp/wafcc-") || !append_user(path, &size) || !append(path, &size, "/trouble-") ||
	       !append_digest(path, &size, known) || exists(path);
}

/* ---- what is asked */

/* Strings that follow each other in memory, as the kernel has laid them there. */
static int in_a_row(char **strings, size_t *count, size_t *size) {
	for (*count = 0, *size = 0; strings[*count]; ++*count) {
		if (strings[*count] != strings[0] + *size)
			return 0;
		*size += length(strings[*count]) + 1;
		if (*size > MOST)
			return 0;
	}
	return *count > 0;
}

/* Only what is surely for a cache, and prints to nobody's terminal: the program knows what to do with all else. */
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

/* Whom we belong to: all commands of one parent are one build. */
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
	/* The start is the twentieth word after the name. */
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
	unsigned char *set = our.processors;
	long size = SYSTEM(SYS_sched_getaffinity, 0, sizeof our.processors, set);
	uint32_t count = 0;
	for (long i = 0; i < size; i++)
		for (unsigned bits = set[i]; bits; bits &= bits - 1)
			count++;
	return count ? count : 1;
}

static void add(const void *bytes, size_t size) {
	our.parts[our.count_of_parts].iov_base = (void *)(uintptr_t)bytes;
	our.parts[our.count_of_parts++].iov_len = size;
}

/* All that is to be said, in one message. */
static int say(int socket, char **argv, char **environment, const unsigned char *caching, size_t caching_size) {
	unsigned char *hello = our.hello, *before_environment = our.before_environment, *before_folder = our.before_folder;
	unsigned char *before_argv = our.before_argv, *folder = our.room.folder;
	size_t variables, variables_size, words, words_size;
	if (!in_a_row(environment, &variables, &variables_size) || !in_a_row(argv + 1, &words, &words_size))
		return 0;
	char name[64];
	size_t name_size = name_session(hello + 13, name);
	long folder_size = SYSTEM(SYS_getcwd, folder, sizeof our.room.folder);
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
	add(hello, 49 + name_size);
	put32(before_environment, (uint32_t)(1 + 4 + 8 + variables_size));
	before_environment[4] = 2;
	put32(before_environment + 5, 0);
	put32(before_environment + 9, (uint32_t)variables);
	put32(before_environment + 13, (uint32_t)variables_size);
	add(before_environment, sizeof our.before_environment);
	add(environment[0], variables_size);
	add(caching, caching_size);
	put32(before_folder, (uint32_t)(1 + 4 + 4 + 4 + 8 + 4 + (size_t)folder_size + 8 + words_size + 4));
	copy(before_folder + 4, "\3\0\0\0\0\0\0\0\0\2\2\1\1", 13);
	put32(before_folder + 25, (uint32_t)folder_size);
	add(before_folder, 29);
	add(folder, (size_t)folder_size);
	put32(before_argv, (uint32_t)words);
	put32(before_argv + 4, (uint32_t)words_size);
	add(before_argv, sizeof our.before_argv);
	add(argv[1], words_size);
	add(our.after, sizeof our.after);
	/* Standard input goes along. */
	struct cmsghdr *head = &our.control.head;
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	struct msghdr *message = &our.message;
	message->msg_iov = our.parts;
	message->msg_iovlen = our.count_of_parts;
	message->msg_control = head;
	message->msg_controllen = sizeof our.control;
	size_t all = 0;
	for (unsigned i = 0; i < our.count_of_parts; i++)
		all += our.parts[i].iov_len;
	/* What does not fit at once is rare, and a cut message is an engine's to forget. */
	return SYSTEM(SYS_sendmsg, socket, message, MSG_NOSIGNAL) == (long)all;
}

static long reach(const char *path) {
	struct sockaddr_un *address = &our.address;
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

/* ---- what is answered */

static void print(int stream, const unsigned char *bytes, size_t size) {
	while (size) {
		long written = SYSTEM(SYS_write, stream, bytes, size);
		/* A reader that has gone is no error of the command. */
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
	/* No core: the command has left its own. */
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

enum told { WAITS, RAN, OTHERWISE };

/* Whether all has come that a command has left; prints it then. */
static enum told look(const unsigned char *bytes, size_t size, int prints, int32_t *code) {
	for (size_t at = 0; at + 5 <= size;) {
		const unsigned char *frame = bytes + at + 4;
		size_t more = u32(bytes + at), most = size - at - 4;
		if (more > most)
			return more > (8u << 20) ? OTHERWISE : WAITS;
		switch (frame[0]) {
		case 0x81:
		case 0x87:
			break;
		case 0x83:
			if (more < 10 || u32(frame + 6) != more - 10)
				return OTHERWISE;
			if (prints)
				print(frame[5] == 1 ? 1 : 2, frame + 10, more - 10);
			break;
		case 0x84:
			if (more < 11 || frame[5] != 0)
				return OTHERWISE;
			*code = (int32_t)u32(frame + 7);
			return RAN;
		default:
			return OTHERWISE;
		}
		at += 4 + more;
	}
	return WAITS;
}

/* Waits for the answer and ends with it. Returns if the program is to do all itself, or to wait on. */
static void listen_to(int socket) {
	unsigned char *bytes = our.room.answer;
	size_t size = 0, most = sizeof our.room.answer;
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
		enum told told = look(bytes, size, 0, &code);
		if (told == RAN) {
			look(bytes, size, 1, &code);
			end_as(code);
		}
		if (told == OTHERWISE)
			break;
	}
	SYSTEM(SYS_close, socket);
}

/* Called at the program's entry with what the kernel has left on the stack. */
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
	if (!(has_card(folder) || is_ours_alone(folder)) || is_troubled(folder))
		return;
	for (uint32_t left = u32(watched); left; left--)
		if (!holds())
			return;
	long socket = reach(path);
	if (socket < 0)
		return;
	if (say((int)socket, argv, environment, caching, caching_size))
		listen_to((int)socket);
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
