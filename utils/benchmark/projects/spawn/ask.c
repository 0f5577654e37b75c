/*
 * Measures how long the engine takes to answer commands from its cache, without a process for each command.
 *
 *     ask SOCKET FRAMES WINDOW RESULT
 *
 * Sends the content of the file FRAMES, which are frames of docs/protocol.md: a greeting, other frames that are no commands, and then
 * commands. The first command is not measured. Of the others, up to WINDOW are on their way at once, and each must be a hit. Writes into
 * the file RESULT the time of one command in microseconds. With a WINDOW of 1 this is the median by the clock and the 99th percentile,
 * otherwise the mean for both. After that comes the mean of this program's processor time.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "times.h"

#define HEAD 5 /* of a frame: length and kind */
#define EXECUTE 0x03
#define WELCOME 0x81
#define OUTPUT 0x83
#define OUTCOME 0x84
#define TOLD 0x87
#define HIT 1

struct frame {
	uint8_t kind;
	const uint8_t *body;
	size_t size;
};

struct inbox {
	int socket;
	size_t start, end;
	uint8_t bytes[1 << 16];
};

struct frames {
	const uint8_t *bytes;
	size_t *starts; /* where each frame starts, and the end of the last one */
	size_t count;
};

static _Noreturn void fail(const char *what) {
	fprintf(stderr, "ask: %s: %s\n", what, errno ? strerror(errno) : "not as expected");
	exit(1);
}

static uint32_t read_u32(const uint8_t *bytes) {
	return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* ---- what is sent */

static struct frames read_frames(const char *path) {
	FILE *file = fopen(path, "rb");

	if (!file || fseek(file, 0, SEEK_END))
		fail(path);
	size_t size = (size_t)ftell(file);
	uint8_t *bytes = malloc(size);
	size_t *starts = malloc((size / HEAD + 2) * sizeof *starts);
	rewind(file);
	if (!bytes || !starts || fread(bytes, 1, size, file) != size)
		fail(path);
	fclose(file);
	struct frames frames = {bytes, starts, 0};
	for (size_t at = 0; at + HEAD <= size; at += 4 + read_u32(bytes + at))
		starts[frames.count++] = at;
	starts[frames.count] = size;
	return frames;
}

static uint8_t kind_of(const struct frames *frames, size_t number) {
	return frames->bytes[frames->starts[number] + 4];
}

static void send_frames(int socket, const struct frames *frames, size_t from, size_t to) {
	size_t at = frames->starts[from], end = frames->starts[to];

	while (at < end) {
		ssize_t sent = send(socket, frames->bytes + at, end - at, MSG_NOSIGNAL);
		if (sent < 0)
			fail("send");
		at += (size_t)sent;
	}
}

/* ---- what comes back */

/* Receives the next frame. It is valid until the next call. */
static struct frame receive(struct inbox *inbox) {
	for (;;) {
		const uint8_t *bytes = inbox->bytes + inbox->start;
		size_t held = inbox->end - inbox->start;

		if (held >= HEAD && held - 4 >= read_u32(bytes)) {
			size_t length = read_u32(bytes);
			inbox->start += 4 + length;
			return (struct frame){bytes[4], bytes + HEAD, length - 1};
		}
		memmove(inbox->bytes, bytes, held);
		inbox->start = 0;
		inbox->end = held;
		ssize_t got = recv(inbox->socket, inbox->bytes + held, sizeof inbox->bytes - held, 0);
		if (got <= 0)
			fail("receive");
		inbox->end += (size_t)got;
	}
}

/* Waits for the outcome of one command. */
static void receive_outcome(struct inbox *inbox, int must_hit) {
	for (;;) {
		struct frame frame = receive(inbox);

		if (frame.kind == TOLD && must_hit && frame.body[4] != HIT) {
			fprintf(stderr, "ask: no hit: %.*s\n", (int)(frame.size - 9), (const char *)frame.body + 9);
			exit(1);
		}
		if (frame.kind == OUTCOME) {
			if (frame.body[4] || read_u32(frame.body + 6)) {
				fprintf(stderr, "ask: a command failed with %d\n", (int)read_u32(frame.body + 6));
				exit(1);
			}
			return;
		}
		if (frame.kind != TOLD && frame.kind != OUTPUT)
			fail("an answer");
	}
}

static int reach(const char *path) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int found = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof address.sun_path)
		fail(path);
	strcpy(address.sun_path, path);
	if (found < 0 || connect(found, (struct sockaddr *)&address, sizeof address))
		fail(path);
	return found;
}

/* ---- what is measured */

static void ask_each(struct inbox *inbox, const struct frames *frames, size_t from, size_t to, int must_hit, double *walls) {
	for (size_t i = from; i < to; i++) {
		double started = read_clock();

		send_frames(inbox->socket, frames, i, i + 1);
		receive_outcome(inbox, must_hit);
		walls[i - from] = read_clock() - started;
	}
}

static void ask_many(struct inbox *inbox, const struct frames *frames, size_t from, size_t window, double *walls) {
	size_t sent = from, done = from, end = frames->count;
	double started = read_clock();

	while (done < end) {
		size_t next = done + window < end ? done + window : end;
		send_frames(inbox->socket, frames, sent, next);
		sent = next;
		/* half of them, so that many are sent together */
		size_t half = done + (sent - done + 1) / 2;
		for (; done < half; done++)
			receive_outcome(inbox, 1);
	}
	double mean = (read_clock() - started) / (double)(end - from);
	for (size_t i = 0; i < end - from; i++)
		walls[i] = mean;
}

int main(int argc, char **argv) {
	if (argc != 5 || atol(argv[3]) < 1) {
		fprintf(stderr, "usage: ask SOCKET FRAMES WINDOW RESULT\n");
		return 2;
	}
	static struct inbox inbox;
	struct frames frames = read_frames(argv[2]);
	size_t window = (size_t)atol(argv[3]), first = 0;

	while (first < frames.count && kind_of(&frames, first) != EXECUTE)
		first++;
	if (first + 2 > frames.count)
		fail("the number of commands");
	size_t from = first + 1, count = frames.count - from;
	double *walls = calloc(count, sizeof *walls);
	if (!walls)
		fail("memory");

	inbox.socket = reach(argv[1]);
	send_frames(inbox.socket, &frames, 0, first);
	if (receive(&inbox).kind != WELCOME)
		fail("the greeting");
	ask_each(&inbox, &frames, first, from, 0, walls);
	struct rusage before, after;
	getrusage(RUSAGE_SELF, &before);
	if (window == 1)
		ask_each(&inbox, &frames, from, frames.count, 1, walls);
	else
		ask_many(&inbox, &frames, from, window, walls);
	getrusage(RUSAGE_SELF, &after);
	timersub(&after.ru_utime, &before.ru_utime, &after.ru_utime);
	timersub(&after.ru_stime, &before.ru_stime, &after.ru_stime);
	if (!write_times(argv[4], walls, count, &after))
		fail(argv[4]);
	return 0;
}
